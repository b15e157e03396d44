"""Helpers of the tests of an engine in another process."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.events.events import Event, Prompt, Token, Turn
from h2o_chat.remote.engine_apart import EngineApart

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
SETTINGS = Settings(model=str(POCKET), budget=48, threads=1, seed=3, events_every=4)
IDS = list(range(40, 140))
"""Few enough to be read in one call of the model, of which nothing is told meanwhile."""
SAMPLING = Sampling(max_tokens=60, ignore_eos=True)
ENDLESS = Sampling(max_tokens=100_000, ignore_eos=True)
WAIT_S = 30.0


def unheard(stage: str, share: float | None) -> None:
    """Nobody asks how far it is."""


def timeless(events: Iterator[Event]) -> list[Event]:
    """The event without what no two runs have alike."""
    found: list[Event] = []
    for event in events:
        match event:
            case Token() | Prompt():
                event = replace(event, ms=0.0)
            case Turn():
                event = replace(event, ttft_ms=0.0, tok_s=0.0)
        found.append(event)
    return found


def tokens(events: Iterator[Event]) -> list[tuple[int, str]]:
    return [(event.id, event.text) for event in events if isinstance(event, Token)]


def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not met():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def pid_of(engine: EngineApart) -> int:
    return engine._process._process.pid
