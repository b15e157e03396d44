"""Which earlier pieces go in front of a message, so that the model reads them once more.

The rule: a question is looked up in the index of what was said; `index.py` scores each piece. The pieces that
share most with it and are no longer held go in front of it, in the order in which they were said, as many as
fit into SHARE of the budget. The same rule brings pieces of a page that is pasted with the question, of
remembered facts and of other conversations (`elsewhere.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import StoreError, UsageError
from h2o_chat.chat.conversation.message import Message, Recalled, all_numbered, fed_text, numbered
from h2o_chat.chat.conversation.sentences import PAGE_CHARACTERS, asked_from, question_of
from h2o_chat.chat.conversation.spans import Places, tokens_of, was_read
from h2o_chat.chat.recall.elsewhere import Elsewhere
from h2o_chat.chat.recall.index import LEAST_WORDS, Hit, Index, Rarity, features
from h2o_chat.events.events import Note

SHARE, LEAST_TOKENS, MOST_SHARE = 0.25, 48, 0.5
"""Share of the budget for what is recalled; at least room for one piece, but never over half the budget."""
HELD = 0.9
"""A piece counts as held if at least this share of its tokens is, averaged over KV heads. Below that, half a
name may be missing."""
LEAST_SCORE = 0.37
"""Score that the best piece needs, but for pieces of pages: one word is enough that is rare in its language
and that the user said nowhere else."""
NEAR_BEST = 0.4
"""Share of the best score that the other pieces need."""
PAGE_NEAR_BEST = 0.2
"""Share that other pieces of a page need: what a question needs of it may stand in several of them."""
LOOKED_AT = 16
"""At most this many pieces are checked for being held."""
PAGE_LOOKED_AT = 1_000_000
"""Characters of a page, its last ones, among which its question is looked up: twice a book, in a second."""
NOTE_CHARACTERS = 400
"""Most characters of what is recalled that a note quotes; of more it tells how many pieces there are."""
NEWEST = 0.4
"""Share of the budget that surely holds the newest tokens."""
POLICIES_WITHOUT_RECALL = ("h2o-paper", "full")
"""Policies that stay as they were published, or evict nothing."""


class Holding(Protocol):
    def held(self, positions: range) -> float: ...


class Recall:
    """Chooses what is recalled in one conversation.

    Args:
        count: number of tokens of a text.
        said: an answer without its thought, of which nothing is recalled.
        rarity: how rare the words of a text are in their language, see `Index`.
    """

    def __init__(
        self,
        count: Callable[[str], int] = len,
        said: Callable[[str], str] = lambda answer: answer,
        rarity: Rarity = len,
    ) -> None:
        self._count, self._said, self.rarity = count, said, rarity
        self.elsewhere: Elsewhere | None = None
        """Finds what was said in other conversations; None: nothing is stored."""
        self._index = Index(rarity)
        self._read: list[Message] = []  # the messages that the index has taken in
        self._places: dict[tuple[int, tuple[Recalled, ...]], Places] = {}
        """By the `id` of a message, one of `_read`, and what was recalled in front of it."""
        self._wanted: tuple[Recalled, ...] = ()
        """Pieces that somebody asked for by hand."""

    def for_message(
        self, text: str, messages: Sequence[Message], engine: Holding, settings: Settings, budget: int | None
    ) -> tuple[tuple[Recalled, ...], str, list[Note]]:
        """Returns what is recalled for a message, the message as the model is fed it, and notes about it."""
        recalled, notes = self._asked_for(messages), list[Note]()
        recalls = settings.recall != "off" and settings.policy not in POLICIES_WITHOUT_RECALL
        if not recalled and budget and recalls:
            others = settings.recall == "all"
            try:
                recalled = self._needed(text, messages, engine, budget, others, self.elsewhere)
            except StoreError:  # whoever writes there says why
                notes.append(Note("elsewhere", "Facts and other conversations cannot be read: not searched."))
                recalled = self._needed(text, messages, engine, budget, others, None)
            if recalled:
                notes.append(_note(recalled, "recalled: the model reads it with your message"))
        return recalled, fed_text(text, recalled), notes

    def by_hand(self, words: str, messages: Sequence[Message], budget: int | None) -> Note:
        """Puts what has most of these words in front of the next message, whether it is held or not.

        Raises:
            UsageError: there are no words, or no message matches them.
        """
        if not words.strip():
            raise UsageError("Which words?", "/recall WORDS that were said: /recall cat called")
        self.read(messages)
        found = self._index.find(words[:PAGE_CHARACTERS], about_page=True)
        if not found:
            what = f"Nothing that was said matches {words!r} closely enough."
            raise UsageError(what, "Try other words of the message that you mean.")
        recalled = _in_order(self._fitting(found, _room(budget)) or found[:1])  # who asks for it gets it
        before, self._wanted = self._asked_for(messages), recalled
        former = all_numbered(one.index for one in before) if before != recalled else ""
        instead = f", instead of {former}" if former else ""
        return _note(recalled, f"goes in front of your next message{instead}")

    def closest(self, answer: str, recalled: Sequence[Recalled]) -> Iterator[Note]:
        """A note with the one of many recalled pieces that shares most with the answer, to check it there."""
        if not _are_many(recalled):
            return
        index = Index(self.rarity)
        for number, one in enumerate(recalled):
            index.add(number, one.words, user=True)
        for hit in index.find(self._said(answer)[:PAGE_CHARACTERS])[:1]:
            best = recalled[hit.piece.message]
            here, about = (f"{numbered(best.index)} ", best.index) if best.index >= 0 else ("", None)
            yield Note("closest", f"Closest to this answer: {here}“{best.words}”.", about=about)

    def was_fed(self) -> None:
        """A message was read, and with it what was recalled by hand."""
        self._wanted = ()

    def read(self, messages: Sequence[Message]) -> None:
        """Takes in what was said since the last time."""
        known = len(self._read)
        if known > len(messages) or (known and messages[known - 1] is not self._read[-1]):
            self._index, self._read, self._places, known = Index(self.rarity), [], {}, 0  # another branch
        for index, message in enumerate(messages[known:], known):
            if message.role != "system" and was_read(message):  # a system prompt is always held
                answer = message.role == "assistant"
                self._index.add(index, self._said(message.text) if answer else message.text, not answer)
            self._read.append(message)

    def _asked_for(self, messages: Sequence[Message]) -> tuple[Recalled, ...]:
        """The pieces that were asked for by hand and are still said in the conversation or its branch."""
        said = [" ".join(one.text.split()) for one in messages] if self._wanted else []
        return tuple(one for one in self._wanted if one.index < len(said) and one.words in said[one.index])

    def _needed(
        self,
        text: str,
        messages: Sequence[Message],
        engine: Holding,
        budget: int,
        others: bool,
        elsewhere: Elsewhere | None,
    ) -> tuple[Recalled, ...]:
        """Finds what a message asks for that is not held; with `others` other conversations are searched.

        Raises:
            StoreError: what lies elsewhere cannot be read.
        """
        self.read(messages)
        question, again = question_of(text), dict[str, list[Message]]()  # where words were recalled
        question = question if len(features(question)) > 1 else ""  # "Hello?"
        for message in messages:
            for one in message.recalled:
                again.setdefault(one.words, []).append(message)

        def is_gone(hit: Hit) -> bool:
            there = [messages[hit.piece.message]] if hit.piece.message >= 0 else []
            there += again.get(hit.piece.text, [])
            return all(self._held(one, hit.piece.text, engine) < HELD for one in there)

        hits = self._index.find(question)[:LOOKED_AT]
        said = any(hit.score >= LEAST_SCORE for hit in hits if not hit.piece.page)
        hits = [hit for hit in hits if said or hit.piece.page]
        best = max((hit.score for hit in hits), default=0.0)
        hits = [hit for hit in hits if hit.score >= (PAGE_NEAR_BEST if hit.piece.page else NEAR_BEST) * best]
        if any(hit.piece.page for hit in hits):  # an answer about it repeats the question, not the page
            hits = [hit for hit in hits if hit.piece.user]
        gone = {hit.number for hit in hits if is_gone(hit)}
        # A newer piece comes along although it is held: it may correct the older one.
        hits = [hit for hit in hits if gone and hit.number >= min(gone)]
        chosen = self._fitting(hits, _room(budget))
        chosen = self._fitting([*chosen[:1], *self._newer(chosen), *chosen[1:]], _room(budget))
        if all(hit.number not in gone for hit in chosen):
            chosen = []
        page = self._of_page(text, question, messages, budget)
        before = any(one.role == "user" and was_read(one) and _tells(one.text) for one in messages)
        least = max(LEAST_SCORE, best / NEAR_BEST if best >= LEAST_SCORE else 0.0)  # of pages it may be less
        beyond = _beyond(elsewhere, question, others, least, not before and _tells(text)) if elsewhere else []
        room = _room(budget)
        return _in_order(self._fitting([*chosen, *page, *filter(is_gone, beyond)], room))

    def _newer(self, hits: Sequence[Hit]) -> list[Hit]:
        """The newer pieces that say much the same: a correction need not have the word that was asked for."""
        newer: list[Hit] = []
        for hit in hits:
            found = [] if hit.piece.page else self._index.find(hit.piece.text)
            alike = (one for one in found if one.number > hit.number and one.score >= LEAST_SCORE)
            newer += [one for one in alike if one.piece.user and not one.piece.page][:1]
        return newer

    def _of_page(self, text: str, question: str, messages: Sequence[Message], budget: int) -> list[Hit]:
        """Finds what the question behind a page needs of it and will be evicted before it is read."""
        page = text[: asked_from(text)][-PAGE_LOOKED_AT:]
        if not page or not question:
            return []
        tokens = self._count(page)
        seen = max((one.last + 1 for one in messages), default=0)
        if seen + tokens <= budget * (1 - SHARE):
            return []
        index, places = Index(self.rarity), Places(" ".join(page.split()), self._count)
        index.add(len(messages), page, user=True)
        held_from = tokens - int(NEWEST * budget)
        hits = index.find(question, about_page=True)[: 4 * LOOKED_AT]
        return [hit for hit in hits if places.of(hit.piece.text, range(tokens)).start < held_from]

    def _fitting(self, hits: Sequence[Hit], room_tokens: int) -> list[Hit]:
        """Takes hits, the best first, while they fit; the same words once."""
        chosen: list[Hit] = []
        for hit in hits:
            size = self._count(hit.piece.text)
            if size <= room_tokens and all(hit.piece.text != one.piece.text for one in chosen):
                chosen.append(hit)
                room_tokens -= size
        return chosen

    def _held(self, message: Message, words: str, engine: Holding) -> float:
        """Share of the tokens of some words of a message, over all KV heads."""
        key = id(message), message.recalled
        if key not in self._places:
            fed = fed_text(message.text, message.recalled)
            self._places[key] = Places(" ".join(fed.split()), self._count)
        return engine.held(self._places[key].of(words, tokens_of(message)))


def _beyond(elsewhere: Elsewhere, question: str, others: bool, least: float, first: bool) -> list[Hit]:
    """Finds what was said elsewhere and scores at least `least`; a `first` message gets all facts, whole.

    "Suggest a snack" shares no word with an allergy.
    """
    hits = elsewhere.find(question, others)[:LOOKED_AT]
    least = max([least, *(NEAR_BEST * hit.score for hit in hits[:1])])
    facts = {one.number: one for one in elsewhere.facts()} if first else {}
    return [*(facts.get(hit.number, hit) for hit in hits if hit.score >= least), *facts.values()]


def _tells(text: str) -> bool:
    """Whether a message is more than a greeting."""
    return sum(isinstance(one, str) for one in features(text[:PAGE_CHARACTERS])) >= LEAST_WORDS


def _room(budget: int | None) -> int:
    """Tokens that may be recalled."""
    if budget is None:
        return 4 * LEAST_TOKENS
    return int(min(max(SHARE * budget, LEAST_TOKENS), MOST_SHARE * budget))


def _in_order(hits: Sequence[Hit]) -> tuple[Recalled, ...]:
    said = sorted(hits, key=lambda hit: (hit.piece.message, hit.number))
    return tuple(Recalled(hit.piece.message, hit.piece.text, hit.piece.user) for hit in said)


def quoted(recalled: Sequence[Recalled]) -> str:
    """The numbers of the messages and their words; of many only what comes from elsewhere, see `closest`."""
    many = _are_many(recalled)
    words = [f"“{one.words}”" for one in recalled if not many or one.index < 0]  # these name their source
    here = all_numbered(one.index for one in recalled if one.index >= 0)
    return " ".join(filter(None, [here, *words, f"({len(recalled)} pieces)" if many else ""]))


def _are_many(recalled: Sequence[Recalled]) -> bool:
    return sum(len(one.words) for one in recalled) > NOTE_CHARACTERS


def _note(recalled: Sequence[Recalled], what: str) -> Note:
    about = next((one.index for one in recalled if one.index >= 0), None)
    return Note("recalled", f"{quoted(recalled)} {what}.", about=about)
