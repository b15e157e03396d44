"""Nothing of a user is lost by upgrading: what older versions wrote opens.

`tests/fixtures/before_the_arena` was written by version 0.1.0 as of 2026-11-22 (commit 11aaee1), with:
`config set budget 96`, `config set top_p 0.9`, `config set temperature 0.7`, and then
`run --script turns.txt --save --budget 32 --seed 3 --temperature 0 --record recording.jsonl` and
`sessions export` to both files. Saved memories had format 5 then. `tests/fixtures/format_6` was written by
commit 4c120d5 with the same `run` of the same messages. Both were held with a pocket whose weights are gone.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from here import h2o_here
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from h2o_chat.base.config import Settings
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import CacheState, Turn
from h2o_chat.events.recording import read
from h2o_chat.models.file_identity import fingerprint
from h2o_chat.models.load import Loaded, load
from h2o_chat.models.resolve import find
from h2o_chat.native import library
from h2o_chat.native.native_model import open_model

FIXTURES = Path(__file__).parents[1] / "fixtures"
BEFORE = FIXTURES / "before_the_arena"


native = pytest.mark.skipif(bool(library.why_not()), reason="it was saved under the native step")


@pytest.fixture(params=["before_the_arena", pytest.param("format_6", marks=native)])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of an old data folder, which is written to."""
    shutil.copytree(FIXTURES / request.param / "data", tmp_path / "data")
    return tmp_path / "data"


def test_a_conversation_of_an_earlier_pocket_is_read_again(data: Path) -> None:
    """Its weights are gone, and what they remembered; its words are there. That is said once."""
    resume = ("run", "--resume", "last", "What is my name?", "--data", data)
    first = h2o_here(*resume)
    assert "Ada" in first.err, "it is recalled"
    assert "an earlier pocket" in first.err
    again = h2o_here(*resume)
    assert "Ada" in again.err, "it is recalled"
    assert "an earlier pocket" not in again.err
    assert "rebuilt" not in again.err, "what was read again is saved"


def test_its_saved_memories_are_dropped_and_all_its_words_kept(data: Path) -> None:
    [old] = data.glob("caches/*/*.safetensors")
    before = h2o_here("sessions", "show", "last", "--data", data).out
    h2o_here("run", "--resume", "last", "--model", "pocket", "Thank you.", "--data", data)
    assert not old.exists() or header(old)["session"]["revision"] == fingerprint(find("pocket").folder)
    assert h2o_here("sessions", "show", "last", "--data", data).out.startswith(before.rstrip())


def header(file: Path) -> dict[str, Any]:
    """The header of a saved memory."""
    with safe_open(file, framework="pt") as opened:
        about: dict[str, Any] = json.loads(opened.metadata()["h2o-chat"])
    return about


def taken_over(
    folder: Path, load: Callable[..., Loaded], into: Path
) -> tuple[Engine, dict[str, torch.Tensor]]:
    """An engine that goes on with the saved memory of an old data folder, and what is in that.

    The memory is said to be of the pocket of now, which has the shape of the earlier one.
    """
    [file] = folder.glob("data/caches/*/*.safetensors")
    settings = Settings(model="pocket", budget=32, seed=3, threads=1)
    engine = Engine(load(settings, lambda *_: None), settings)
    about, tensors = header(file), load_file(file)
    about["session"]["revision"] = engine.session.revision
    save_file(tensors, into / file.name, metadata={"h2o-chat": json.dumps(about)})
    engine.load(into / file.name)
    return engine, tensors


def test_a_saved_memory_holds_the_same_tokens(tmp_path: Path) -> None:
    engine, old = taken_over(BEFORE, load, tmp_path)
    for layer in range(engine.session.layers):
        assert torch.equal(engine.cache.kept(layer), old[f"{layer}.positions"])
        slots = engine.cache.layers[layer].slots
        assert torch.equal(slots.keys, old[f"{layer}.keys"])
        assert torch.equal(slots.score, old[f"{layer}.by_head"])
    assert engine.seen == int(old["0.seen"])
    held = (old["0.positions"] >= 0).sum(-1).max()
    assert engine.cache.most_kept == int(held)
    assert engine.forward([5]).isfinite().all()


@native
def test_a_saved_memory_of_format_6_holds_the_same_tokens(tmp_path: Path) -> None:
    engine, old = taken_over(FIXTURES / "format_6", open_model, tmp_path)
    slots = engine.cache.current_arenas()[0].slots
    for name, was in (("positions", "positions"), ("score", "score"), ("lately", "recent")):
        assert torch.equal(slots.states[name], old[f"0.{was}"])
    assert slots.lately.any()
    assert engine.cache.most_kept == int((slots.positions >= 0).sum(-1).max())
    assert engine.forward([5]).isfinite().all()


def test_settings_recordings_and_exports_open(tmp_path: Path, file: Path) -> None:
    shutil.copy(BEFORE / "config.toml", file)
    shown = h2o_here("config", "show")
    assert "96" in shown.out

    events = list(read(BEFORE / "recording.jsonl"))
    assert len([event for event in events if isinstance(event, Turn)]) == 7
    assert any(isinstance(event, CacheState) for event in events)

    asked = json.loads((BEFORE / "conversation.json").read_text())
    h2o_here("sessions", "import", BEFORE / "conversation.json", "--data", tmp_path / "data")
    exported = h2o_here("sessions", "export", "last", "--format", "json", "--data", tmp_path / "data")
    texts = [message["text"] for message in json.loads(exported.out)["messages"]]
    assert texts == [message["text"] for message in asked["messages"]]
