"""What the cache has let go of, and a question asks for, is said to the model again.

The transcript keeps everything. When a message asks, the earlier words that fit it best are found
(`finding.py`). If the KV heads hold too little of them, they stand in front of the question as it is fed;
what a person sees is what was typed. The same is done with a pinned message that is far back: it is held, but
small models misread it there. The model reads words better than it reads evicted keys and values that are put
back into the slots, and words need no file of their own (docs/RECALL.md).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import UsageError
from h2o_chat.chat.asking import question_of
from h2o_chat.chat.finding import BEGINNING, WORD, Finder, Found
from h2o_chat.chat.following import followed
from h2o_chat.chat.message import Message, Recalled, numbered
from h2o_chat.chat.personal import Wanted, is_hers, of_somebody, wanted
from h2o_chat.chat.places import Places
from h2o_chat.chat.spans import tokens_of, was_read
from h2o_chat.chat.told import names, told
from h2o_chat.events.events import Note

HELD = 0.9
"""Share of the words' tokens, over all KV heads, from which on they are held, and need not be said again: of
less a small model reads half a name."""
MOSTLY = 0.5
"""Of less than this share the note says that they were mostly forgotten."""
NEAR_TOKENS = 128
"""Of a pinned message, back from the newest token: nearer it is read as well as when it is said again."""
TURNS = 4
"""So many turns back it is looked what a short question means."""
LONG_CHARACTERS = 1000
"""A longer message brings with it what it asks about: a file, a page that was pasted."""
GONE = "No message of yours was found that answers this: the answer may be a guess."
UNFOUND = (
    "No message of yours was found that answers this. All of them are held still: what you said in other"
    " words may be known, else the answer is a guess."
)
WITHOUT = ("h2o-paper", "full")
"""Policies that are left as they were published, or forget nothing."""


class Holding(Protocol):
    """An engine: what it holds."""

    def held(self, positions: range) -> float: ...


class Recall:
    """Finds what to say again, in one conversation.

    Args:
        notes: gets what a person is told.
        count: how many tokens a text has, by which the words of a long message are found among its tokens.
    """

    def __init__(self, notes: list[Note], count: Callable[[str], int] = len) -> None:
        self._notes, self._count = notes, count
        self._finder = Finder()
        self._read: list[Message] = []
        """Those whose words the finder has, or that have none to find."""
        self._places: dict[tuple[int, str], Places] = {}
        """By the `id` of a message, one of `_read`, and what was told again in front of it."""
        self._wanted: tuple[Recalled, Message] | None = None
        """What somebody asked for by hand, and the message that it comes from."""

    def before(
        self, text: str, messages: Sequence[Message], engine: Holding, settings: Settings
    ) -> tuple[Recalled | None, str]:
        """What to say again in front of a message, and the message as the model is fed it.

        None: it asks for nothing that is gone and can be found.

        Args:
            messages: all that were said before.
        """
        # What is left here was said of a message that could not be sent: its place is taken now.
        self._notes[:] = [note for note in self._notes if note.code not in ("gone", "recalled", "doubtful")]
        again, sure = self._asked_for(messages), True
        by_hand = again
        auto = settings.recall == "auto" and settings.policy not in WITHOUT
        if again is None and auto and len(text) <= LONG_CHARACTERS and (typed := question_of(text)):
            self.read(messages)
            question = followed(typed, _asked_before(messages))
            what = wanted(question) or self._of_one_of_hers(question)
            found = told(self._finder, question, what) if what else self._fitting(question)
            if found is not None and not self._is_at_hand(found, messages, engine):
                again, sure = Recalled(found.index, found.text), found.sure
            if found is None and what and not _brings(text, typed, messages, what):
                self._notes.append(
                    Note("gone", UNFOUND if _holds(engine, messages) else GONE, about=len(messages))
                )
        if again is None:
            return None, text
        if again is not by_hand:
            why = self._why(messages[again.index], again.words, engine)
            if sure:
                self._notes.append(_note(again, f"{why}: the model is told again"))
            else:  # about the question
                doubt = _note(again, f"{why}: the model is told again, but it may not answer this")
                self._notes.append(replace(doubt, code="doubtful", about=len(messages)))
        return again, again.before(text)

    def by_hand(self, words: str, messages: Sequence[Message]) -> Note:
        """Has what fits these words best said again in front of the next message, held or not.

        One thing goes in front of a message: the note names what was asked for before and is not said now.

        Raises:
            UsageError: no words, or nobody has said anything like them.
        """
        if not words.strip():
            raise UsageError("Which words?", "/recall WORDS that you said: /recall cat called")
        self.read(messages)
        found = self._finder.find(words, rare_words=1)
        if not found:
            raise UsageError(f"No message has any of the words {words!r}.", "/recall WORDS that you said.")
        again, before = Recalled(found[0].index, found[0].text), self._asked_for(messages)
        self._wanted = again, messages[again.index]
        instead = f", instead of {numbered(before.index)}" if before not in (None, again) else ""
        return _note(again, f"goes in front of your next message{instead}")

    def told(self) -> None:
        """A message was read: what was asked for by hand was in front of it, and waits no more."""
        self._wanted = None

    def read(self, messages: Sequence[Message]) -> None:
        """Takes in what was said since the last time: 45 microseconds a message."""
        known = len(self._read)
        if known > len(messages) or (known and messages[known - 1] is not self._read[-1]):
            self._finder, self._read, self._places, known = Finder(), [], {}, 0  # another branch
        for index, message in enumerate(messages[known:], known):
            if message.role == "user" and was_read(message):
                self._finder.add(index, message.text)
            self._read.append(message)

    def _fitting(self, question: str) -> Found | None:
        best = next(iter(self._finder.find(question)), None)
        return best if best is not None and best.fits else None

    def _of_one_of_hers(self, question: str) -> Wanted | None:
        """What is asked about somebody whom the person named as she spoke of herself: "my cousin Milo"."""
        name, what = of_somebody(question) or ("", None)
        said = self._finder.with_any({word[:BEGINNING] for word in WORD.findall(name.casefold())})
        return what if any(is_hers(name, text) for _, text in said) else None

    def _asked_for(self, messages: Sequence[Message]) -> Recalled | None:
        """What was asked for by hand, unless the conversation is another one since, or on another branch."""
        if self._wanted is None:
            return None
        again, message = self._wanted
        return again if again.index < len(messages) and messages[again.index] is message else None

    def _is_at_hand(self, found: Found, messages: Sequence[Message], engine: Holding) -> bool:
        """Whether the words are held: those of the message, or of one with which they were said again.

        If it is pinned they are held anyway: then one of them has to be near.
        """
        pinned, newest = messages[found.index].pinned, max(one.last for one in messages)
        again = (one for one in messages if one.recalled is not None and one.recalled.words == found.text)
        return any(
            self._held(one, found.text, engine) >= HELD and not (pinned and newest - one.last > NEAR_TOKENS)
            for one in (messages[found.index], *again)
        )

    def _held(self, message: Message, words: str, engine: Holding) -> float:
        """Share of the tokens of these words, over all KV heads.

        Of a page that was pasted one line may be gone.
        """
        again = message.recalled
        key = id(message), again.words if again else ""
        if key not in self._places:
            text = again.before(message.text) if again else message.text
            self._places[key] = Places(" ".join(text.split()), self._count)
        places = self._places[key]
        return engine.held(places.of(words, tokens_of(message)))

    def _why(self, message: Message, words: str, engine: Holding) -> str:
        """Why they are told again."""
        held = self._held(message, words, engine)
        if held >= HELD:
            return "is pinned, but far back"
        return ("was mostly" if held < MOSTLY else "was partly") + " forgotten" if held else "was forgotten"


def _holds(engine: Holding, messages: Sequence[Message]) -> bool:
    """Whether nothing at all was evicted."""
    newest = max((one.last for one in messages), default=-1)
    return newest >= 0 and engine.held(range(newest + 1)) == 1.0


def _asked_before(messages: Sequence[Message]) -> str:
    """The last question, with what it left out; empty where the last message asked nothing."""
    question = ""
    said = [one for one in messages[-2 * TURNS :] if one.role == "user" and len(one.text) <= LONG_CHARACTERS]
    for message in said:
        question = followed(question_of(message.text), question)
    return question


def _brings(text: str, question: str, messages: Sequence[Message], what: Wanted) -> bool:
    """Whether the message itself tells what it asks for, or the system prompt, which is always held."""
    system = messages[0].text if messages and messages[0].role == "system" else ""
    return any(names(one, what) for one in (" ".join(text.split()).replace(question, ""), system))


def _note(again: Recalled, what: str) -> Note:
    return Note("recalled", f'{numbered(again.index)} "{again.words}" {what}.', about=again.index)
