"""A message of a conversation: shown, stored, as an event, and how much of it is held."""

import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from h2o_chat.base.errors import UsageError
from h2o_chat.chat.conversation.sentences import asked_from, ends_in_file, ends_in_word
from h2o_chat.chat.conversation.spans import own_ids, tokens_of, tokens_read, was_read
from h2o_chat.engine.detokenize import MOST_TEXTS, texts
from h2o_chat.events.events import CacheState, Finish, ReadSoFar, Role, Said
from h2o_chat.store import Conversation, StoredMessage, title_of

LONGEST_CHARACTERS = 4 << 20
"""The longest message: about a million tokens, which a small model reads for minutes."""


def numbered(index: int) -> str:
    """The name of a message everywhere, by its index: `#1` is the first."""
    return f"#{index + 1}"


def all_numbered(indices: Iterable[int]) -> str:
    """The names of messages, each once: `#1, #7`; -1 is of another conversation, or not known any more."""
    return ", ".join(dict.fromkeys(numbered(one) if one >= 0 else "elsewhere" for one in indices))


def speaker(role: str, model: str) -> str:
    """The name at the head of a message; the model's without folder, precision and `instruct`.

    `qwen2.5-coder-1.5b-instruct-q4_k_m.gguf` speaks as `qwen2.5-coder-1.5b`.
    """
    name = re.sub(r"^ollama:|\.gguf$", "", model.rsplit("/", 1)[-1])
    name = re.sub(r"(?i)([-._](ud-)?(i?q\d\w*|b?f16|f32|mxfp4\w*))?$", "", name)
    name = re.sub(r"(?i)[-_](instruct|chat|it)$", "", name) or model
    return {"user": "you", "assistant": name}.get(role, role)


def no_such(index: int, count: int) -> UsageError:
    there = f"They are #1 to #{count}." if count else "Nothing was said yet."
    return UsageError(f"There is no message {numbered(index)}.", there)


def not_too_long(text: str) -> str:
    """Returns the text; raises UsageError if it is longer than a message may be."""
    if len(text) > LONGEST_CHARACTERS:
        what = f"A message of {len(text):,} characters is too long: {LONGEST_CHARACTERS:,} is the most."
        raise UsageError(what, "Send it in parts: --script FILE, with lines of --- between them.")
    return text


@dataclass(frozen=True)
class Recalled:
    """Earlier words that the model reads once more, with a later message."""

    index: int
    """Index of the message they come from; -1 where that is not known."""
    words: str
    by_user: bool = True
    """The user said them, or a tool, not the model."""


def fed_text(text: str, recalled: Sequence[Recalled]) -> str:
    """The text that is fed for a message: what is recalled stands in front of its question."""
    if not recalled:
        return text
    at = 0 if ends_in_file(text) else asked_from(text)
    said = " ".join(
        f"{'' if one.by_user else 'You said: '}{one.words}{'.' if ends_in_word(one.words) else ''}"
        for one in recalled
    )
    return f"{text[:at]}Context: {said}\n\nQuestion: {text[at:]}"


@dataclass
class Message:
    role: str
    """system | user | assistant | tool"""
    text: str
    first: int = -1
    """Position of its first token; -1 while none was fed."""
    last: int = -1
    finish: str | None = None
    """How an answer ended; None while it streams."""
    hold: float = 1.0
    """Mean hold of its tokens when last looked at."""
    id: int | None = None
    """Its number in the store; None where it is not stored."""
    pinned: bool = False
    """Its tokens are protected from eviction, as far as they were still held."""
    texts: list[str] = field(default_factory=list)
    """The text of each of its tokens, where it was said before somebody looked."""
    recalled: tuple[Recalled, ...] = ()
    """Pieces that the model read once more with it."""
    thought_tokens: int = 0
    """Number of its first tokens that are a thought; of an answer that was given now."""
    branch: tuple[int, int] | None = None
    """(number from 1, count) among the messages said in this place; None: it is the only one."""


class Holds:
    """Hold by position, from the `cache` events: the share of caches that keep each token."""

    def __init__(self) -> None:
        self._held: dict[int, float] = {}
        self._placed: list[tuple[int, int]] = []
        """(position of the first token, index) of each message that was read."""
        self._known = 0  # how many messages there were at the last look
        self._holding: list[int] = []  # indices of the messages that held anything then

    def __len__(self) -> int:
        return len(self._held)

    def forget(self) -> None:
        """Forget all until the next state; the messages may be others."""
        for known in (self._held, self._placed, self._holding):
            known.clear()
        self._known = 0

    def take(self, state: CacheState) -> None:
        if state.whole:
            self._held.clear()
        for position, hold, _ in state.changed:
            if hold > 0:
                self._held[position] = hold
            else:
                self._held.pop(position, None)

    def share_out(self, messages: Sequence[Message], seen: int) -> list[tuple[int, float]]:
        """Sets `hold` of each message that was read; returns (index, mean hold of its tokens) if above 0."""
        new = self._place(messages)
        total: dict[int, float] = {}
        for position, hold in self._held.items():
            at = bisect_right(self._placed, (position, len(messages))) - 1
            if at >= 0:
                _, index = self._placed[at]
                total[index] = total.get(index, 0.0) + hold
        for index in {*self._holding, *total, *(index for _, index in self._placed[new:])}:
            message = messages[index]
            read = tokens_read(tokens_of(message), seen)
            message.hold = total.get(index, 0.0) / read if read else 1.0
        self._holding = sorted(total)
        return [(index, messages[index].hold) for index in self._holding]

    def _place(self, messages: Sequence[Message]) -> int:
        """Places the messages that may have moved; returns from where on `_placed` is new.

        A long conversation costs no more than a short one.
        """
        # One turn may change three positions: of the system prompt, the message and the answer.
        start = max(0, min(self._known, len(messages)) - 3)
        if messages and was_read(messages[0]) and self._placed[:1] != [(messages[0].first, 0)]:
            start = 0  # a system prompt that was read at last
        kept = bisect_left(self._placed, start, key=lambda placed: placed[1])
        now = ((index, messages[index]) for index in range(start, len(messages)))
        self._placed[kept:] = [(message.first, index) for index, message in now if was_read(message)]
        self._known = len(messages)
        self._holding = [index for index in self._holding if index < len(messages)]
        return kept


OWN_PAGE = -1
"""Stored for what a page brings back of itself: no message has this number. None: from elsewhere."""


def from_stored(path: Sequence[StoredMessage]) -> list[Message]:
    """The messages of a stored branch; `Holds` sets their hold."""
    places: dict[int | None, int] = {stored.id: index for index, stored in enumerate(path)}
    messages = list[Message]()
    for one in path:
        places[OWN_PAGE] = len(messages)
        found = [(places.get(number, -1), words) for number, words in one.recalled]
        recalled = tuple(Recalled(at, words, at < 0 or path[at].role != "assistant") for at, words in found)
        place = one.first, one.last, one.finish
        message = Message(one.role, one.text, *place, id=one.id, pinned=one.pinned, recalled=recalled)
        messages.append(message)
    return messages


def to_event(index: int, message: Message) -> Said:
    role, finish = cast(Role, message.role), cast(Finish | None, message.finish)
    hold = message.hold if was_read(message) else None
    place = message.first, message.last
    return Said(
        *(index, role, message.text, finish, hold, *place, message.texts, message.pinned),
        recalled=[(one.index, one.words) for one in message.recalled],
    )


def from_event(said: Said) -> Message:
    """The message of an event: the inverse of `to_event`."""
    first, hold = (-1, 1.0) if said.hold is None else (max(said.first, 0), said.hold)
    return Message(
        *(said.role, said.text, first, said.last, said.finish, hold),
        pinned=said.pinned,
        texts=said.texts,
        recalled=tuple(Recalled(*one) for one in said.recalled),
    )


def as_conversation(messages: Sequence[Message], model: str) -> Conversation:
    """Messages that are not stored, in the form of stored ones: without tokens and times."""
    stored = [
        StoredMessage(
            number,
            number - 1 if number else None,
            *(one.role, one.text, one.finish),
            pinned=one.pinned,
            recalled=tuple((None if each.index < 0 else each.index, each.words) for each in one.recalled),
        )
        for number, one in enumerate(messages)
    ]
    now, leaf = time.time(), len(stored) - 1 if stored else None
    asked = next((one.text for one in messages if one.role == "user"), "")
    return Conversation("", title_of(asked), model, {}, now, now, leaf, stored)


def give_texts(messages: Sequence[Message], stored: Mapping[int, Sequence[int]], tokenizer: Any) -> None:
    """Sets `texts` of the newest messages, up to MOST_TEXTS tokens, and of as many tokens of older ones that
    are held; `stored` has the ids of each message by its number in the store.
    """
    for message, ids in _spelt(messages, stored):
        answer = message.role == "assistant"
        spelt, which = texts(tokenizer, ids, special=not answer), own_ids(message, len(ids))
        system = messages[0]
        message.texts = spelt[which]
        if not answer and system.role == "system" and system.last == message.first - 1:
            system.texts = spelt[max(0, which.start - len(tokens_of(system))) : which.start]


def _spelt(
    messages: Sequence[Message], stored: Mapping[int, Sequence[int]]
) -> Iterator[tuple[Message, Sequence[int]]]:
    read = [(message, stored.get(message.id or -1, ())) for message in messages]
    read = [(message, ids) for message, ids in read if was_read(message) and ids]
    left = MOST_TEXTS
    while read and len(read[-1][1]) <= left:
        left -= len(read[-1][1])
        yield read.pop()
    left = MOST_TEXTS
    for message, ids in read:
        if message.hold > 0 and len(ids) <= left:
            left -= len(ids)
            yield message, ids


def progress_words(so_far: ReadSoFar) -> str:
    """`18,432 of 48,687 · 38% · about 28 s · 1,632 tok/s`."""
    share = f"{so_far.tokens:,} of {so_far.of:,} · {so_far.share:.0%}"
    if so_far.ms <= 0 or not so_far.tokens:
        return share
    pace = 1000 * so_far.tokens / so_far.ms
    left_s = (so_far.of - so_far.tokens) / pace
    left = f" · about {about_time(left_s)}" if so_far.tokens < so_far.of else ""
    return f"{share}{left} · {pace:,.0f} tok/s"


def about_time(seconds: float) -> str:
    return f"{max(seconds, 1):.0f} s" if seconds < 100 else f"{seconds / 60:,.0f} min"
