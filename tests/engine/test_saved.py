"""Saved caches that somebody made: their checksums are right, and what they say is not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import SavedCacheError
from h2o_chat.cache import absorb, arena, state
from h2o_chat.engine import saved_cache
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.saved_cache import _check
from h2o_chat.events.events import Token
from h2o_chat.models.load import load

Harm = Callable[[dict[str, Any], dict[str, Any]], object]


@pytest.fixture(scope="module")
def engine(shared_models: Path) -> Engine:
    settings = Settings(model=str(shared_models / "stories260k"), budget=16, threads=1, seed=1)
    return Engine(load(settings, lambda *_: None), settings)


@pytest.mark.parametrize(
    "harm",
    [
        lambda about, _: about.update(session=[]),
        lambda about, _: about.update(checks=None),
        lambda about, _: about.update(format="\x1b[2J" * 1000),
        lambda about, _: about["session"].update(model=[0] * 1000),
        lambda about, _: about.update(parts=[]),
        lambda about, _: about.update(parts=7),
        lambda about, _: about.update(parts=[[0, 0, 1, 2, 3]]),
        lambda about, _: about.update(clock=7),
        lambda about, _: about["clock"].update(near_from=2**70),
        lambda about, _: about["clock"].update(base=True),
        lambda about, _: about["clock"].update(in_use=30),
        lambda about, _: about.update(pins=[2]),
        lambda about, _: about.update(pins={}),
        lambda about, _: about.update(pins=""),
        lambda about, _: about.update(lost=[3, float("nan")]),
        lambda about, _: about.update(lost=[3, "1"]),
        lambda about, _: about.update(lost={}),
        lambda _, tensors: tensors.update(random=torch.zeros(3)),
        lambda _, tensors: tensors.update(random=torch.zeros(5056, dtype=torch.uint8)),
        lambda _, tensors: tensors.update(random=torch.zeros(5056)),
        lambda _, tensors: tensors.update(pending=torch.tensor([10**6])),
        lambda _, tensors: tensors.pop("0.keys"),
    ],
)
def test_what_is_crafted_is_refused_and_changes_nothing(engine: Engine, tmp_path: Path, harm: Harm) -> None:
    short = Sampling(max_tokens=2, ignore_eos=True)
    engine.reset()
    list(engine.generate(list(range(5, 40)), short))
    file = tmp_path / "1.safetensors"
    engine.save(file)
    with safe_open(file, framework="pt") as opened:
        about = json.loads(opened.metadata()["h2o-chat"])
    tensors = load_file(file)
    harm(about, tensors)
    if isinstance(about["checks"], dict):
        about["checks"] = {name: _check(tensor) for name, tensor in tensors.items()}
    save_file(tensors, file, metadata={"h2o-chat": json.dumps(about)})
    with pytest.raises(SavedCacheError) as caught:
        engine.load(file)
    assert 10 < len(str(caught.value)) < 400
    assert engine.seen == 36, "as it was"
    assert list(engine.generate([7], short))


def test_the_memory_of_a_short_conversation_takes_little_room_and_goes_on(
    shared_models: Path, tmp_path: Path
) -> None:
    settings = Settings(model=str(shared_models / "stories260k"), budget=200, threads=1, seed=1)
    loaded = load(settings, lambda *_: None)
    file, long = tmp_path / "1.safetensors", Sampling(max_tokens=300, ignore_eos=True)
    one, other = Engine(loaded, settings), Engine(loaded, settings)
    list(one.generate([5, 6, 7], Sampling(max_tokens=8, ignore_eos=True)))
    one.save(file)
    assert load_file(file)["0.positions"].shape[-1] == one.seen + 1
    other.load(file)
    said = [list(each.generate([7], long)) for each in (one, other)]
    then = [[token for token in events if isinstance(token, Token)] for events in said]
    assert [token.id for token in then[0]] == [token.id for token in then[1]]
    one.save(file)
    assert load_file(file)["0.positions"].shape[-1] == 201, "tokens have been evicted"


def test_slots_that_are_missing_although_something_was_evicted_are_refused(
    engine: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "1.safetensors"
    engine.reset()
    list(engine.generate(list(range(5, 40)), Sampling(max_tokens=2, ignore_eos=True)))
    engine.save(file)
    with safe_open(file, framework="pt") as opened:
        about = json.loads(opened.metadata()["h2o-chat"])
    tensors = {
        name: tensor[:, :, :, :10].contiguous() if tensor.ndim > 3 else tensor
        for name, tensor in load_file(file).items()
    }
    about["checks"] = {name: _check(tensor) for name, tensor in tensors.items()}
    save_file(tensors, file, metadata={"h2o-chat": json.dumps(about)})
    with pytest.raises(SavedCacheError, match="10 slots"):
        engine.load(file)


def test_a_state_that_came_later_than_the_file_begins_empty(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adding a state takes one line: files that do not have it still open."""
    file = tmp_path / "1.safetensors"
    engine.reset()
    list(engine.generate(list(range(5, 40)), Sampling(max_tokens=2, ignore_eos=True)))
    engine.save(file)
    later = (*state.STATES, state.State("later", "", "int32", empty=-7))
    for module in (arena, absorb, saved_cache):
        monkeypatch.setattr(module, "STATES", later)
    monkeypatch.setattr(state, "STATES", later)
    engine.reset()
    engine.load(file)
    assert engine.seen == 36
    assert bool((engine.cache.absorbed_arenas()[0].slots.later == -7).all())
    assert list(engine.generate([7], Sampling(max_tokens=2, ignore_eos=True)))


def test_what_is_no_description(engine: Engine, tmp_path: Path) -> None:
    for text in ("[" * 100_000, "null", "7", "9" * 5000, "{}"):
        save_file({"random": torch.zeros(1)}, tmp_path / "x", metadata={"h2o-chat": text})
        with pytest.raises(SavedCacheError):
            engine.load(tmp_path / "x")
