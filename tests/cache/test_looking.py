"""Looking, saving and resuming change nothing: the same tokens, and the same ones kept, at every step."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from feeding import kept
from sweep import sweep

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import CacheState, Token
from h2o_chat.models.load import Loaded, load

SETTINGS = Settings(budget=128, threads=1, seed=5, events_every=0)
LONG = Sampling(max_tokens=200, ignore_eos=True, temperature=0.9)


@pytest.fixture(scope="module")
def loaded(little: Path) -> Loaded:
    return load(replace(SETTINGS, model=str(little)), lambda *_: None)


def prompt(tokens: int) -> list[int]:
    return torch.randint(3, 4000, (tokens,), generator=torch.Generator().manual_seed(2)).tolist()


def said(engine: Engine, ids: list[int], sampling: Sampling = LONG) -> list[int]:
    return [event.id for event in engine.generate(ids, sampling) if isinstance(event, Token)]


@pytest.mark.parametrize("every", [1, *sweep(3)])
def test_an_observer_changes_nothing(loaded: Loaded, every: int) -> None:
    alone, watched = Engine(loaded, SETTINGS), Engine(loaded, replace(SETTINGS, events_every=every))
    expected = said(alone, prompt(150))
    events = list(watched.generate(prompt(150), LONG))
    assert [event.id for event in events if isinstance(event, Token)] == expected
    assert len([event for event in events if isinstance(event, CacheState)]) >= 200 // every
    assert kept(alone.cache) == kept(watched.cache)


def test_saved_and_resumed_in_the_middle_of_a_stride(loaded: Loaded, tmp_path: Path) -> None:
    """At every place between two evictions: 4 slots are given up at once."""
    whole, stopped = Engine(loaded, SETTINGS), Engine(loaded, SETTINGS)
    assert whole.cache.plan.stride == 4
    places = set()
    said(whole, prompt(150))
    said(stopped, prompt(150))
    for tokens in (1, 2, 3, 5, 7, 11):
        short = replace(LONG, max_tokens=tokens)
        places.add(stopped.cache.clocks[0].in_use)
        stopped.save(tmp_path / "1.safetensors")
        stopped = Engine(loaded, SETTINGS)
        stopped.load(tmp_path / "1.safetensors")
        assert kept(whole.cache) == kept(stopped.cache)
        assert said(stopped, prompt(1), short) == said(whole, prompt(1), short)
        assert kept(whole.cache) == kept(stopped.cache)
    assert len(places) >= 3, "not only just after an eviction"
