"""One message of a conversation: on the screen, from the store, as an event."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from h2o_chat.base.errors import UsageError
from h2o_chat.chat.recall.index import asked_from
from h2o_chat.chat.spans import own, tokens_of, was_read
from h2o_chat.engine.detokenize import MOST_TEXTS, texts
from h2o_chat.events.events import Finish, Role, Said
from h2o_chat.store import Conversation, StoredMessage, title_of

LONGEST_CHARACTERS = 4 << 20
"""Of what is said at once: about a million tokens. Reading them takes a small model minutes."""


def numbered(index: int) -> str:
    """What a message is called everywhere, by its place: `#1` is the first."""
    return f"#{index + 1}"


def no_such(index: int, count: int) -> UsageError:
    """There is no message in this place."""
    there = f"They are #1 to #{count}." if count else "Nothing was said yet."
    return UsageError(f"There is no message {numbered(index)}.", there)


def not_too_long(text: str) -> str:
    """The same text.

    Raises:
        UsageError: it is longer than may be said at once.
    """
    if len(text) > LONGEST_CHARACTERS:
        raise UsageError(
            f"A message of {len(text):,} characters is too long: {LONGEST_CHARACTERS:,} is the most.",
            "Say it in parts: --script FILE, with lines of --- between them.",
        )
    return text


@dataclass(frozen=True)
class Recalled:
    """Words said before that the model reads once more, with a later message."""

    index: int
    """The place of the message they come from; -1 where that is not known."""
    words: str
    by_user: bool = True
    """The user said them, not the model."""


def fed_text(text: str, recalled: Sequence[Recalled]) -> str:
    """A message as the model is fed it: what is recalled stands in front of its question."""
    if not recalled:
        return text
    at = asked_from(text)
    said = " ".join(
        f"{'' if one.by_user else 'You said: '}{one.words}{'.' if one.words[-1:].isalnum() else ''}"
        for one in recalled
    )
    return f"{text[:at]}Context: {said}\n\nQuestion: {text[at:]}"


@dataclass
class Message:
    """What one side said, and where its tokens lie."""

    role: str
    """system | user | assistant"""
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
    branch: tuple[int, int] | None = None
    """(which it is, from 1; of how many) of those said in this place; None: nothing else was said here."""


def of_stored(path: Sequence[StoredMessage]) -> list[Message]:
    """The messages of a branch as they were written down; their hold is set by `Holds`."""
    places: dict[int | None, int] = {stored.id: index for index, stored in enumerate(path)}
    return [_of_stored(stored, places, path) for stored in path]


def _of_stored(
    stored: StoredMessage, places: Mapping[int | None, int], path: Sequence[StoredMessage]
) -> Message:
    found = [(places.get(number, -1), words) for number, words in stored.recalled]
    return Message(
        stored.role,
        stored.text,
        stored.first,
        stored.last,
        stored.finish,
        id=stored.id,
        pinned=stored.pinned,
        recalled=tuple(Recalled(at, words, at < 0 or path[at].role == "user") for at, words in found),
    )


def as_event(index: int, message: Message) -> Said:
    """A message as an event."""
    role, finish = cast(Role, message.role), cast(Finish | None, message.finish)
    hold = message.hold if was_read(message) else None
    place = message.first, message.last
    return Said(
        *(index, role, message.text, finish, hold, *place, message.texts, message.pinned),
        recalled=[(one.index, one.words) for one in message.recalled],
    )


def of_event(said: Said) -> Message:
    """The message that an event tells of: the other way round."""
    first, hold = (-1, 1.0) if said.hold is None else (max(said.first, 0), said.hold)
    return Message(
        *(said.role, said.text, first, said.last, said.finish, hold),
        pinned=said.pinned,
        texts=said.texts,
        recalled=tuple(Recalled(*one) for one in said.recalled),
    )


def as_conversation(messages: Sequence[Message], model: str) -> Conversation:
    """Messages that are not stored, as if they had been: without tokens and times."""
    stored = [
        StoredMessage(
            id=number,
            parent=number - 1 if number else None,
            role=one.role,
            text=one.text,
            finish=one.finish,
            first=-1,
            last=-1,
            ids=(),
            created=0.0,
            pinned=one.pinned,
            recalled=tuple((_named(each.index), each.words) for each in one.recalled),
        )
        for number, one in enumerate(messages)
    ]
    now, leaf = time.time(), len(stored) - 1 if stored else None
    asked = next((one.text for one in messages if one.role == "user"), "")
    return Conversation("", title_of(asked), model, {}, now, now, leaf, stored)


def _named(index: int) -> int | None:
    """The number of a message that is not stored: its place, from 0."""
    return None if index < 0 else index


def give_texts(messages: Sequence[Message], stored: Mapping[int, Sequence[int]], tokenizer: Any) -> None:
    """Gives the newest messages, up to MOST_TEXTS tokens of them, the texts of their tokens.

    So with as many tokens of older ones of which something is held, the oldest first.

    Args:
        stored: token ids by the number of their message in the store.
    """
    for message, ids in _spelt(messages, stored):
        answer = message.role == "assistant"
        spelt, which, system = texts(tokenizer, ids, special=not answer), own(message, len(ids)), messages[0]
        message.texts = spelt[which]
        if not answer and system.role == "system" and system.last == message.first - 1:
            system.texts = spelt[max(0, which.start - len(tokens_of(system))) : which.start]


def _spelt(
    messages: Sequence[Message], stored: Mapping[int, Sequence[int]]
) -> Iterator[tuple[Message, Sequence[int]]]:
    """Those that get texts, and their ids."""
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
