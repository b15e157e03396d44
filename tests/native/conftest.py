"""Small models to pack, each test with a cache of its own."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from families import Pack
from families import saved as saved_family
from making import SIZES, Make
from tiny_models import tiny

from h2o_chat.native import library
from h2o_chat.native.packing import packed_for


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of packed files; nothing is there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "h2o-chat" / "packed"


@pytest.fixture
def saved(tmp_path: Path) -> Make:
    """Saves a random tiny model of a family, and says where."""

    def make(family: str = "llama", name: str = "model", shard: str = "1GB", **changes: Any) -> Path:
        dtype = changes.pop("dtype", torch.float32)
        seed = changes.pop("seed", 0)
        sizes = SIZES | ({"hidden_size": 64} if family in ("qwen3_moe", "olmoe") else {})
        model = tiny(family, "eager", dtype, seed, **sizes | changes)
        model.save_pretrained(tmp_path / name, max_shard_size=shard)
        return tmp_path / name

    return make


@pytest.fixture
def compiled() -> None:
    """Skips the test where the library was not compiled."""
    if library.why_not():
        pytest.skip(f"there is no native step: {library.why_not()}")


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a random model, made once."""
    return functools.cache(lambda name: saved_family(name, tmp_path_factory.mktemp("model")))


@pytest.fixture
def pack(folders: Callable[[str], Path]) -> Pack:
    """Its packed weights."""
    return lambda name, bits: packed_for(folders(name), bits, lambda *_: None)
