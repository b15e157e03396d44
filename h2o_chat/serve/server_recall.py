"""Recall for the server, as on the screen: evicted text that the last message needs is read again.

Clients send the whole conversation. Positions of its messages are stored with the memory after an answer, so
that it is known which of them are still held (docs/RECALL.md).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from h2o_chat.base.config import Settings
from h2o_chat.chat.conversation.message import Message, Recalled
from h2o_chat.chat.recall.recall import Recall
from h2o_chat.events.events import Note

if TYPE_CHECKING:
    from h2o_chat.engine.saved_cache import RowSnapshot

LOOKED_AT_CHARACTERS = 400_000
"""Newest characters that are searched, about 100,000 tokens: half a second."""
Said = Sequence[tuple[str, str]]
"""(role, text) of each message."""


@dataclass
class MessagePositions:
    ends: list[int] = field(default_factory=list)
    """Per read message: the position behind its tokens."""
    again: dict[int, tuple[Recalled, ...]] = field(default_factory=dict)
    """Recalled pieces, by index of the message that they were recalled for."""
    thoughts: list[list[int]] = field(default_factory=list)
    """[position of the first token, tokens] of the thoughts that the next message of a user drops."""

    def to_json(self) -> Any:
        return [
            self.ends,
            [[at, one.index, one.words] for at, pieces in self.again.items() for one in pieces],
            self.thoughts,
        ]


def positions_of_json(kept: Any, messages: int, fed: int) -> MessagePositions | None:
    """Positions from the output of `to_json`, perhaps of a file; None if they are not those of so many
    messages and of `fed` tokens, pending ones included.
    """
    match kept:
        case [[*ends], [*again], *rest] if len(ends) == messages and all(type(end) is int for end in ends):
            thoughts = rest[0] if rest and isinstance(rest[0], list) else []
        case _:
            return None
    if ends != sorted(ends) or not 0 <= ends[0] <= ends[-1] <= fed:
        return None
    pairs = [one for one in thoughts if isinstance(one, list) and [*map(type, one)] == [int, int]]
    found = MessagePositions(ends, thoughts=pairs)
    for one in again:
        match one:
            case [int(at), int(index), str(words)] if 0 <= index <= at < messages:
                found.again[at] = (*found.again.get(at, ()), Recalled(index, words))
            case _:
                return None
    return found


@dataclass(frozen=True)
class HeldTokens:
    """Tells what the cache will hold when the last message is read."""

    state: "RowSnapshot | None"
    """The memory that the conversation continues; None: all of it is read first."""
    newest: int
    """Position from which on unread tokens will be held."""

    def held(self, positions: range) -> float:
        """Share of the tokens at these positions that the KV heads hold: 0 to 1."""
        from h2o_chat.engine.row import share_held

        if self.state is None or positions.start >= self.state.cache.fed:
            return float(positions.start >= self.newest)
        return share_held([part.states["positions"][:, 0] for part in self.state.cache.parts], positions)


class LastConversation:
    """Caches the index of the last conversation, so that its messages are indexed once."""

    def __init__(self, count: Callable[[str], int] = len, rarity: Callable[[str], float] = len) -> None:
        self.count, self.rarity = count, rarity
        self.recall = Recall(count, rarity=rarity)
        self._messages: list[Message] = []

    def messages(self, said: Said) -> list[Message]:
        """The messages of a conversation; the same objects as before if it is the last one."""
        known = len(self._messages)
        if [(one.role, one.text) for one in self._messages] != list(said[:known]):
            self._messages, known = [], 0
        self._messages += [Message(role, text) for role, text in said[known:]]
        for message in self._messages:  # their positions may differ this time
            message.first, message.last, message.recalled = -1, -1, ()
        return self._messages


def with_recalled(
    messages: Said,
    places: MessagePositions,
    holding: HeldTokens,
    settings: Settings,
    known: LastConversation,
    budget: int | None,
) -> tuple[str, list[Note]]:
    """The last message with recalled pieces in front, and notes about them; adds them to `places`."""
    if sum(len(text) for _, text in messages[:-1]) > LOOKED_AT_CHARACTERS:
        known = LastConversation(known.count, known.rarity)  # a smaller index may not be extended
    spans = zip([0, *places.ends], places.ends, strict=False)
    before = known.messages(messages[:-1])
    for at, (message, (first, end)) in enumerate(zip(before, spans, strict=False)):
        message.first, message.last, message.recalled = first, end - 1, places.again.get(at, ())
    left = LOOKED_AT_CHARACTERS
    for message in reversed(before):
        left -= len(message.text)
        if left < 0:
            message.first = -1
    recalled, text, notes = known.recall.for_message(messages[-1][1], before, holding, settings, budget)
    if recalled:
        places.again[len(before)] = recalled
    return text, notes
