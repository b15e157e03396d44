"""Small models to pack, each test with a cache of its own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from making import SIZES, Make
from tiny_models import tiny


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
        model = tiny(family, "eager", dtype, seed, **SIZES | changes)
        model.save_pretrained(tmp_path / name, max_shard_size=shard)
        return tmp_path / name

    return make
