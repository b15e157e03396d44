"""Recall for the server: what the last message needs and the cache has evicted, as on the screen.

Clients send all that was said. Where each message lies is kept with the memory after an answer, so that it
is known of each whether it is held (docs/RECALL.md).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from h2o_chat.base.config import Settings
from h2o_chat.chat.conversation.message import Message, Recalled
from h2o_chat.chat.recall.recall import Recall
from h2o_chat.events.events import Note

if TYPE_CHECKING:
    from h2o_chat.engine.saved_cache import RowSnapshot

LOOKED_AT_CHARACTERS = 400_000
"""Of the newest messages, about 100,000 tokens: half a second. What was said before is not looked up."""
Said = Sequence[tuple[str, str]]
"""(role, text) of each message."""


@dataclass
class Places:
    """Where the messages of a conversation lie."""

    ends: list[int] = field(default_factory=list)
    """Of each that was read the position behind its tokens."""
    again: dict[int, tuple[Recalled, ...]] = field(default_factory=dict)
    """Recalled pieces, by the place of the message that they were recalled for."""

    def to_json(self) -> Any:
        """To be kept with the memory."""
        return [
            self.ends,
            [[at, one.index, one.words] for at, pieces in self.again.items() for one in pieces],
        ]


def with_places(state: "RowSnapshot", places: Places | None) -> "RowSnapshot":
    """The memory after an answer, with where its messages lie; `places` knows all but the answer."""
    if places is None:
        return state
    places.ends.append(state.cache.fed + len(state.pending))
    return replace(state, about=places.to_json())


def places_of(kept: Any, messages: int, fed: int) -> Places | None:
    """What `to_json` gave, perhaps from a file: checked; None where it does not tell of so many messages.

    Args:
        fed: tokens read, with those that wait to be.
    """
    match kept:
        case [[*ends], [*again]] if len(ends) == messages and all(type(end) is int for end in ends):
            pass
        case _:
            return None
    if ends != sorted(ends) or not 0 <= ends[0] <= ends[-1] <= fed:
        return None
    found = Places(ends)
    for one in again:
        match one:
            case [int(at), int(index), str(words)] if 0 <= index <= at < messages:
                found.again[at] = (*found.again.get(at, ()), Recalled(index, words))
            case _:
                return None
    return found


@dataclass(frozen=True)
class Holding:
    """What is held when the last message is read."""

    state: "RowSnapshot | None"
    """The memory that the conversation goes on from; None: all of it is to be read first."""
    newest: int
    """What is still to be read is held from this position on."""

    def held(self, positions: range) -> float:
        """Share of the tokens at these positions that the KV heads hold: 0 to 1."""
        from h2o_chat.engine.row import share_held

        if self.state is None or positions.start >= self.state.cache.fed:
            return float(positions.start >= self.newest)
        return share_held([part.states["positions"][:, 0] for part in self.state.cache.parts], positions)


class Known:
    """The conversation that was looked at last: the words of its messages are taken in once.

    Args:
        count: how many tokens a text has.
    """

    def __init__(self, count: Callable[[str], int] = len) -> None:
        self.notes: list[Note] = []
        self.count = count
        self.recall = Recall(self.notes, count)
        self._messages: list[Message] = []

    def messages(self, said: Said) -> list[Message]:
        """Of a conversation; the same objects where it is that one, by which `recall` knows it again."""
        known = len(self._messages)
        if [(one.role, one.text) for one in self._messages] != list(said[:known]):
            self._messages, known = [], 0
        self._messages += [Message(role, text) for role, text in said[known:]]
        for message in self._messages:  # where they lie may be told otherwise this time
            message.first, message.last, message.recalled = -1, -1, ()
        return self._messages


def retold(
    messages: Said, places: Places, holding: Holding, settings: Settings, known: Known, budget: int | None
) -> tuple[str, list[Note]]:
    """The last message as the model is fed it, and what is said of that; noted in `places`.

    Args:
        messages: all of a conversation; of a first one `places` knows nothing yet.
        known: of the conversation before, which may be the same.
    """
    if sum(len(text) for _, text in messages[:-1]) > LOOKED_AT_CHARACTERS:
        known = Known(known.count)  # of the one before more may be known than is looked at
    spans = zip([0, *places.ends], places.ends, strict=False)
    before = known.messages(messages[:-1])
    for at, (message, (first, end)) in enumerate(zip(before, spans, strict=False)):
        message.first, message.last, message.recalled = first, end - 1, places.again.get(at, ())
    left = LOOKED_AT_CHARACTERS
    for message in reversed(before):
        left -= len(message.text)
        if left < 0:
            message.first = -1
    recalled, text = known.recall.before(messages[-1][1], before, holding, settings, budget)
    if recalled:
        places.again[len(before)] = recalled
    return text, list(known.notes)
