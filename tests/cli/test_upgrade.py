"""Nothing of a user is lost by upgrading: what older versions wrote opens.

`tests/fixtures/before_the_arena` was written by version 0.1.0 as of 2026-11-22 (commit 11aaee1), with:
`config set budget 96`, `config set top_p 0.9`, `config set temperature 0.7`, and then
`run --script turns.txt --save --budget 32 --seed 3 --temperature 0 --record recording.jsonl` and
`sessions export` to both files. Saved memories had format 5 then. `tests/fixtures/format_6` was written by
commit 4c120d5 with the same `run` of the same messages.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from here import h2o_here
from safetensors.torch import load_file

from h2o_chat.base.config import Settings
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import CacheState, Turn
from h2o_chat.events.recording import read
from h2o_chat.models.load import Loaded, load
from h2o_chat.native import library
from h2o_chat.native.loading import open_model

FIXTURES = Path(__file__).parents[1] / "fixtures"
BEFORE = FIXTURES / "before_the_arena"


native = pytest.mark.skipif(bool(library.why_not()), reason="it was saved under the native step")


@pytest.fixture(params=["before_the_arena", pytest.param("format_6", marks=native)])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of an old data folder, which is written to."""
    shutil.copytree(FIXTURES / request.param / "data", tmp_path / "data")
    return tmp_path / "data"


def test_a_conversation_goes_on_from_its_saved_memory(data: Path) -> None:
    ended = h2o_here("run", "--resume", "last", "What is my name?", "--data", data, "--temperature", "0")
    assert ended.code == 0, ended.err
    assert "Ada" in ended.out
    assert "rebuilt" not in ended.err
    assert "cannot be used" not in ended.err


def test_the_pocket_of_now_does_not_go_on_with_it(data: Path) -> None:
    """Opened so from the list on the screen, or by name, it would be that one's for ever after."""
    ended = h2o_here("run", "--resume", "last", "--model", "pocket", "What is my name?", "--data", data)
    assert ended.code == 2, ended.err
    assert "was held with the pocket of before, pocket-1" in ended.err
    assert "without --model, goes on with that one" in " ".join(ended.err.split())


def taken_over(folder: Path, load: Callable[..., Loaded]) -> tuple[Engine, dict[str, torch.Tensor]]:
    """An engine that goes on with the saved memory of an old data folder, and what is in that."""
    [file] = folder.glob("data/caches/*/*.safetensors")
    settings = Settings(model="pocket-1", budget=32, seed=3, threads=1)
    engine = Engine(load(settings, lambda *_: None), settings)
    engine.load(file)
    return engine, load_file(file)


def test_a_saved_memory_holds_the_same_tokens() -> None:
    engine, old = taken_over(BEFORE, load)
    for layer in range(engine.session.layers):
        assert torch.equal(engine.cache.kept(layer), old[f"{layer}.positions"])
        slots = engine.cache.layers[layer].slots
        assert torch.equal(slots.keys, old[f"{layer}.keys"])
        assert torch.equal(slots.score, old[f"{layer}.by_head"])
        assert torch.equal(slots.novelty, old[f"{layer}.alone"])
    assert engine.seen == int(old["0.seen"])
    held = (old["0.positions"] >= 0).sum(-1).max()
    assert engine.cache.most_kept == int(held)
    assert engine.forward([5]).isfinite().all()


@native
def test_a_saved_memory_of_format_6_holds_the_same_tokens() -> None:
    engine, old = taken_over(FIXTURES / "format_6", open_model)
    slots = engine.cache.arenas[0].slots
    for name, was in (("positions", "positions"), ("score", "score"), ("lately", "recent")):
        assert torch.equal(slots.states[name], old[f"0.{was}"])
    assert slots.lately.any()
    assert engine.cache.most_kept == int((slots.positions >= 0).sum(-1).max())
    assert engine.forward([5]).isfinite().all()


def test_settings_recordings_and_exports_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config" / "h2o-chat").mkdir(parents=True)
    shutil.copy(BEFORE / "config.toml", tmp_path / "config" / "h2o-chat")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    shown = h2o_here("config", "show")
    assert shown.code == 0, shown.err
    assert "96" in shown.out

    events = list(read(BEFORE / "recording.jsonl"))
    assert len([event for event in events if isinstance(event, Turn)]) == 7
    assert any(isinstance(event, CacheState) for event in events)

    asked = json.loads((BEFORE / "conversation.json").read_text())
    done = h2o_here("sessions", "import", BEFORE / "conversation.json", "--data", tmp_path / "data")
    assert done.code == 0, done.err
    exported = h2o_here("sessions", "export", "last", "--format", "json", "--data", tmp_path / "data")
    texts = [message["text"] for message in json.loads(exported.out)["messages"]]
    assert texts == [message["text"] for message in asked["messages"]]
