"""Saved caches that somebody made: their checksums are right, and what they say is not."""

from pathlib import Path
from typing import Any

import pytest
import torch
from crafted import Harm, craft
from safetensors.torch import load_file, save_file

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import SavedCacheError
from h2o_chat.cache import absorb, arena, state
from h2o_chat.engine import saved_cache
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Token
from h2o_chat.models.load import load

SHORT = Sampling(max_tokens=2, ignore_eos=True)


@pytest.fixture(scope="module")
def engine(shared_models: Path) -> Engine:
    settings = Settings(model=str(shared_models / "stories260k"), budget=16, threads=1, seed=1)
    return Engine(load(settings, lambda *_: None), settings)


@pytest.fixture
def file(engine: Engine, tmp_path: Path) -> Path:
    """The memory of a conversation from which tokens were evicted; the engine holds it."""
    engine.reset()
    list(engine.generate(list(range(5, 40)), SHORT))
    engine.save(tmp_path / "1.safetensors")
    return tmp_path / "1.safetensors"


def far_on(about: dict[str, Any], base: int) -> None:
    """Keys would be turned by ever more positions."""
    about["fed"] = about["clock"]["seen"] = about["clock"]["near_from"] = 1_431_656_000
    about["clock"]["base"] = base


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
        lambda about, _: about.update(format=99),
        lambda about, _: about.update(parts=[list(reversed(part)) for part in about["parts"]]),
        lambda about, _: far_on(about, 0),
        lambda about, _: far_on(about, 1_431_656_000),
        lambda _, tensors: tensors.update({"0.keys": tensors["0.keys"][..., :4].contiguous()}),
        lambda _, tensors: tensors["0.positions"].fill_(10**6),
        lambda _, tensors: tensors["0.score"].view(-1)[0].fill_(torch.nan),
        lambda _, tensors: tensors.update(texts=tensors["texts"][:, :1].contiguous()),
    ],
)
def test_what_is_crafted_is_refused_and_changes_nothing(engine: Engine, file: Path, harm: Harm) -> None:
    craft(file, harm)
    with pytest.raises(SavedCacheError) as caught:
        engine.load(file)
    assert 10 < len(str(caught.value)) < 400
    assert engine.seen == 36, "as it was"
    assert list(engine.generate([7], SHORT))


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
    engine: Engine, file: Path
) -> None:
    def cut(_: Any, tensors: dict[str, torch.Tensor]) -> None:
        whole = {name: one for name, one in tensors.items() if one.ndim > 3}
        tensors |= {name: one[:, :, :, :10].contiguous() for name, one in whole.items()}

    craft(file, cut)
    with pytest.raises(SavedCacheError, match="10 slots"):
        engine.load(file)


def test_a_state_that_came_later_than_the_file_begins_empty(
    engine: Engine, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adding a state takes one line: files that do not have it still open."""
    later = (*state.STATES, state.State("later", "", "int32", empty=-7))
    for module in (arena, absorb, saved_cache):
        monkeypatch.setattr(module, "STATES", later)
    monkeypatch.setattr(state, "STATES", later)
    engine.reset()
    engine.load(file)
    assert engine.seen == 36
    assert bool((engine.cache.current_arenas()[0].slots.later == -7).all())
    assert list(engine.generate([7], SHORT))


def test_what_is_no_description(engine: Engine, tmp_path: Path) -> None:
    for text in ("[" * 100_000, "null", "7", "9" * 5000, "{}"):
        save_file({"random": torch.zeros(1)}, tmp_path / "x", metadata={"h2o-chat": text})
        with pytest.raises(SavedCacheError):
            engine.load(tmp_path / "x")
