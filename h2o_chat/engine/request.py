"""What a batch is asked for, and what it tells. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from h2o_chat.base.config import Sampling
from h2o_chat.engine.diversion import Other
from h2o_chat.events.events import Event


@dataclass(frozen=True)
class Piece:
    """Tokens of a conversation, in the order in which they are read."""

    ids: Sequence[int]
    answer: bool = False
    """The model said them, in an earlier turn."""


@dataclass(eq=False)
class Request:
    """A conversation to be answered; two that say the same are still two."""

    pieces: Sequence[Piece]
    """The last one is a prompt."""
    sampling: Sampling
    seed: int
    system_tokens: int = 0
    """Of the first tokens so many are protected."""
    pins: range = range(0)
    """Positions that are protected, too."""
    others: Sequence[Other] = ()
    """Answers that the answer must not go on as."""
    gives_up: bool = False
    """What the model said before is given up once all but the last piece is read."""
    begin: Any = None
    """What `Row.snapshot` has taken of a conversation that goes on: it was read before. The batch
    lets it go once it has a copy."""
    keep: bool = False
    """With its end comes what the next turn can begin with."""


@dataclass(frozen=True)
class Told:
    """What happened to a request: `Prompt`, `Token` ..., now and then `CacheState`, at the end `Turn`."""

    request: Request
    event: Event
    error: Exception | None = None
    """Why its turn has ended with `error`."""
    row: int | None = None
    """Of a `Turn`: the row that it was answered in; None where nothing was answered."""
    state: Any = None
    """Of a `Turn` whose request says `keep`: what `Row.snapshot` has taken; None after an error."""
