"""Conversations of random length, held beside others and alone."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.progress import never
from h2o_chat.engine.batch import Batch
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.request import BatchReport, Request, RequestPiece
from h2o_chat.events.events import Event, Token, Turn
from h2o_chat.models.load import Loaded

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
NATIVE = Settings(model=str(POCKET), budget=48, threads=1, seed=1, events_every=0)
EXACT = replace(NATIVE, dtype="float64")


def noise(tokens: int, rng: random.Random) -> list[int]:
    return [rng.randrange(3, 4000) for _ in range(tokens)]


def no_memory(*_: Any) -> Any:
    """In place of what a call needs memory for."""
    raise MemoryError("there is no more")


@contextmanager
def broken(layer: Any, after: int = 0) -> Iterator[None]:
    """A layer that fails after so many calls."""
    calls = 0

    def fails(*_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls > after:
            no_memory()

    hook = layer.register_forward_hook(fails)
    try:
        yield
    finally:
        hook.remove()


def requests(count: int, seed: int, most: int = 60) -> list[Request]:
    """Of random length, some with an answer of before, a system prompt, pins; greedy or drawn."""
    rng, made = random.Random(seed), []
    for number in range(count):
        pieces = [RequestPiece(noise(rng.randint(1, 90), rng))]
        if number % 3 == 1:
            pieces += [
                RequestPiece(noise(rng.randint(1, 40), rng), answer=True),
                RequestPiece(noise(rng.randint(1, 9), rng)),
            ]
        sampling = Sampling(
            temperature=rng.choice([0.0, 0.8, 1.3]),
            top_p=rng.choice([1.0, 0.9]),
            repetition_penalty=rng.choice([1.0, 1.2]),
            max_tokens=rng.randint(1, most),
            stop=rng.choice([(), ("e", "the ")]),
            ignore_eos=bool(number % 2),
        )
        pins = range(3, 3 + rng.choice([0, 0, 4]))
        made.append(Request(pieces, sampling, rng.randrange(2**32), rng.choice([0, 5]), pins))
    return made


@dataclass
class Heard:
    """The reports about a request."""

    events: list[Event] = field(default_factory=list)
    error: Exception | None = None

    @property
    def ids(self) -> list[int]:
        return [event.id for event in self.events if isinstance(event, Token)]

    @property
    def turn(self) -> Turn:
        (turn,) = (event for event in self.events if isinstance(event, Turn))
        assert self.events[-1] is turn, "nothing comes behind it"
        return turn


def hold(
    batch: Batch, many: list[Request], meanwhile: Callable[[BatchReport], None] = lambda told: None
) -> list[Heard]:
    """Adds them by and by, and answers them all."""
    heard, coming = {request: Heard() for request in many}, list(many)
    rng = random.Random(len(many))
    while coming or batch.busy:
        for _ in range(min(len(coming), rng.choice([0, 0, 1, 5]))):
            batch.add(coming.pop(0))
        for told in batch.step():
            heard[told.request].events.append(told.event)
            heard[told.request].error = heard[told.request].error or told.error
            meanwhile(told)
    return [heard[request] for request in many]


def alone(loaded: Loaded, settings: Settings, request: Request) -> Heard:
    """As an engine of its own answers it."""
    engine = Engine(loaded, replace(settings, seed=request.seed))
    engine.protect(request.system_tokens)
    engine.pin(request.pins)
    for piece in request.pieces[:-1]:
        engine.feed_again(piece.ids, answer=piece.answer, exact=False, cancel=never)
    return Heard(list(engine.generate(request.pieces[-1].ids, request.sampling)))


def same(one: Heard, other: Heard) -> None:
    """The same tokens, and as much evicted; times differ, and what was lost before the last prompt."""
    assert one.ids == other.ids
    assert one.error is None
    for turn in (one.turn, other.turn):
        assert turn.new_tokens == len(one.ids)
    for of in ("text", "finish", "seen", "kept", "evicted"):
        assert getattr(one.turn, of) == getattr(other.turn, of)
    if one.turn.prompt_tokens == other.turn.prompt_tokens:
        assert one.turn.lost == pytest.approx(other.turn.lost)


def same_as_alone(
    loaded: Loaded, settings: Settings, many: list[Request], heard: list[Heard], but: Request | None = None
) -> None:
    """Each is answered as an engine of its own answers it, but for one."""
    for request, one in zip(many, heard, strict=True):
        if request is not but:
            same(one, alone(loaded, settings, request))
