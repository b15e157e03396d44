"""The requests of a batch, its reports, and answers that must not be continued. No torch."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from h2o_chat.base.config import Sampling
from h2o_chat.events.events import Event


@dataclass(frozen=True)
class EarlierAnswer:
    ids: tuple[int, ...]
    free: int  # number of its first tokens that may be repeated


OWN_TOKENS = 5  # an answer that must not continue others may repeat this many consecutive tokens of itself


class AnswersToAvoid:
    """Follows the tokens of an answer, and knows which may not come next."""

    def __init__(self, others: Sequence[EarlierAnswer]) -> None:
        self._followed = list(others)  # earlier answers that begin as this one does
        self._may_repeat_itself = not any(one.free for one in others)
        """True where only the first words of others are barred (ctrl+r): code and tables repeat words."""
        self._said: list[int] = []
        self._own = defaultdict[tuple[int, ...], list[int]](list)
        """The tokens that came after each OWN_TOKENS of the answer."""

    def refused(self) -> list[int]:
        """Tokens that would continue as one of the others, or the answer itself, did before."""
        at, newest = len(self._said), tuple(self._said[-OWN_TOKENS:])
        others = [one.ids[at] for one in self._followed if one.free <= at < len(one.ids)]
        return others + self._own.get(newest, [])

    def note_token(self, token: int) -> None:
        at = len(self._said)
        if self._followed:
            self._followed = [one for one in self._followed if at < len(one.ids) and one.ids[at] == token]
        if not self._may_repeat_itself and at >= OWN_TOKENS:
            self._own[tuple(self._said[-OWN_TOKENS:])].append(token)
        self._said.append(token)


@dataclass(frozen=True)
class RequestPiece:
    """Tokens of a conversation, in reading order."""

    ids: Sequence[int]
    answer: bool = False  # the model said them, in an earlier turn


class Chance(NamedTuple):
    """A token and the natural logarithm of its share, before sampling changes it."""

    id: int
    log: float


@dataclass(frozen=True)
class Wishes:
    """Wishes of a client about the tokens of an answer, with the names and signs of OpenAI's API."""

    bias: Mapping[int, float] = field(default_factory=dict)  # added to the logits of these tokens
    presence: float = 0.0  # subtracted from the logit of each token that the answer has
    frequency: float = 0.0  # subtracted as often as the answer has the token
    chances: int | None = None  # number of likeliest tokens to be told with each token; None: nothing is told
    grammar: Any = None  # a `Grammar`, or None


NO_WISHES = Wishes()


@dataclass(eq=False)
class Request:
    """A conversation to be answered; two equal requests are still two."""

    pieces: Sequence[RequestPiece]  # the last one is a prompt
    sampling: Sampling
    seed: int
    system_tokens: int = 0  # number of first tokens that are protected
    pins: range = range(0)  # positions that are protected, too
    others: Sequence[EarlierAnswer] = ()  # answers that the answer must not continue
    wishes: Wishes = NO_WISHES  # further wishes about the answer's tokens
    evicts_generated: bool = False
    """The model's earlier tokens are evicted once all but the last piece is read."""
    openings: Sequence[int] = ()  # positions of prompt tokens that are evicted with them
    thoughts: Sequence[range] = ()
    """Positions of thoughts, given up with the last piece; see `Row.give_up_thoughts`."""
    drops_thoughts: bool = True  # at once
    shown: Sequence[int] = ()  # see `Row.expect_thoughts`
    begin: Any = None  # a `Row.snapshot` of what was read before; the batch drops it once copied
    keep: bool = False  # its end comes with a snapshot for the next turn


@dataclass(frozen=True)
class BatchReport:
    """A report about a request: `Prompt`, `Token` ..., now and then `CacheState`, at the end `Turn`."""

    request: Request
    event: Event
    error: Exception | None = None  # the reason of a turn that ended with `error`
    row: int | None = None  # for a `Turn`, its row; None where nothing was answered
    chances: Sequence[Chance] = ()  # for a `Token` of a request that wishes them
    state: Any = None  # for a `Turn` of a request with `keep`, its `Row.snapshot`; None after an error
