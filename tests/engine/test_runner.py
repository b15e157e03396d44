"""Several conversations in one runner are held as each is alone, in float64; one costs what it did."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from beside import EXACT as SETTINGS
from beside import broken
from reads import reads

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import OutOfMemoryError
from h2o_chat.base.progress import never
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.generation import generate
from h2o_chat.engine.row import Row
from h2o_chat.engine.runner import Runner, cache_for
from h2o_chat.events.events import Token
from h2o_chat.models.load import Loaded, load


def noise(tokens: int, seed: int) -> list[int]:
    return torch.randint(3, 4000, (tokens,), generator=torch.Generator().manual_seed(seed)).tolist()


def kept(row: Row) -> list[list[list[int]]]:
    """Positions that are held, by layer and KV head."""
    layers = (row.cache.kept(layer)[row.number].tolist() for layer in range(row.session.layers))
    return [[sorted(at for at in head if at >= 0) for head in heads] for heads in layers]


def answered(row: Row, ids: list[int], tokens: int) -> list[int]:
    """The ids of an answer of so many tokens."""
    events = generate(row, ids, Sampling(max_tokens=tokens, ignore_eos=True), never)
    return [event.id for event in events if isinstance(event, Token)]


def test_a_row_goes_on_in_another_runner(loaded: Loaded, tmp_path: Path) -> None:
    """Taken of three rows, put into two of which none was fed yet, saved there, resumed alone."""
    three = Runner(loaded, cache_for(loaded, SETTINGS), rows=3)
    here, other = Row(three, SETTINGS, 1), Row(three, SETTINGS, 2)
    answered(other, noise(80, 5), 30)
    expected, before = Engine(loaded, SETTINGS), kept(other)
    for row in (here, expected):
        row.pin(range(3, 5))
        answered(row, noise(60, 1), 30)
    two = Runner(loaded, cache_for(loaded, SETTINGS), rows=2)
    beside = Row(two, SETTINGS, 1)
    beside.protect(7)
    there = Row(two, SETTINGS, 0)
    there.restore(here.snapshot())
    assert beside.protection()[0] == 7, "what was said of the other row before is still true"
    there.save(tmp_path / "1.safetensors")
    resumed = Engine(loaded, SETTINGS)
    resumed.load(tmp_path / "1.safetensors")
    for row in (here, there, resumed):
        assert kept(row) == kept(expected)
        assert row.protection() == expected.protection()
        assert row.inspect(3) == expected.inspect(3)
    said = answered(expected, noise(5, 9), 30)
    assert [answered(row, noise(5, 9), 30) for row in (here, there, resumed)] == [said] * 3
    assert kept(other) == before


def test_a_row_that_fails_takes_no_other_with_it(loaded: Loaded) -> None:
    runner = Runner(loaded, cache_for(loaded, SETTINGS), rows=2)
    failing, other = Row(runner, SETTINGS, 0), Row(runner, SETTINGS, 1)
    for row in (failing, other):
        answered(row, noise(60, row.number), 40)
    before = [kept(failing), kept(other)]
    with (
        broken(loaded.model.model.layers[1], after=3),
        pytest.raises(OutOfMemoryError, match="there is no more"),
    ):
        answered(failing, [5, 6], 40)
    assert [kept(failing), kept(other)] == before
    engine = Engine(loaded, SETTINGS)
    answered(engine, noise(60, 1), 40)
    assert answered(other, noise(4, 3), 40) == answered(engine, noise(4, 3), 40)
    assert kept(other) == kept(engine)


def test_one_row_costs_what_an_engine_did(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call of the model for a short prompt and for each token after the first, no mask, no padding;
    read are the tokens, and at the end of the turn what was lost."""
    engine, prompt = Engine(loaded, SETTINGS), noise(100, 1)
    engine.sampler.on_cpu = False  # as on a GPU, where a read waits for all that was asked before
    made = list[dict[str, Any]]()
    hook = loaded.model.register_forward_pre_hook(lambda _, __, how: made.append(how), with_kwargs=True)
    with reads(monkeypatch) as read:
        assert len(answered(engine, prompt, 40)) == 40
    hook.remove()
    assert [tuple(how["input_ids"].shape) for how in made] == [(1, 100)] + [(1, 1)] * 39
    assert not any("attention_mask" in how for how in made)
    assert read == {"_local_scalar_dense": 41}


def test_a_look_copies_once(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(loaded, SETTINGS)
    answered(engine, noise(100, 1), 3)
    assert len(engine.cache.current_arenas()) == 1
    with reads(monkeypatch) as read:
        engine.cache_state()
    assert read == {"cpu": 1, "numpy": 1, "_local_scalar_dense": 1}, "slots once, and what was lost"


def test_a_session_says_what_a_slot_takes() -> None:
    settings = replace(SETTINGS, dtype="float32", budget=64)
    engine = Engine(load(settings, lambda *_: None), settings)
    engine.forward([5])
    tensors = [state for a in engine.cache.current_arenas() for state in (*a.slots.states.values(), a.order)]
    assert engine.session.slot_bytes * 65 == sum(tensor.nbytes for tensor in tensors)
    assert engine.session.stride == engine.cache.plan.stride == 2
