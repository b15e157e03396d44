"""Keys and values that were evicted are put back: heads stay as full, and what comes back is what went."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import opened_models
import pytest
import torch
from sweep import sweep

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import UsageError
from h2o_chat.cache.quantized import dequantise
from h2o_chat.engine.engine import Engine
from h2o_chat.lab.putting_back import BITS, Rows, put_back, rows_of

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
MESSAGE = range(8, 20)


@pytest.fixture(scope="module")
def loaded() -> Any:
    return opened_models.loaded(Settings(model=str(POCKET), threads=1))


def numbers(rows: Sequence[Rows]) -> dict[int, torch.Tensor]:
    """Keys and values of each layer. [2, H, N, D]"""
    both = ((one, dequantise(torch.stack((one.keys, one.values)), BITS, torch.float32)) for one in rows)
    return {layer: found[:, at] for one, found in both for at, layer in enumerate(one.layers)}


@pytest.mark.parametrize(
    ("kv", "after"),  # far from clamped and rebased keys, and beyond
    [("auto", 60), ("int8", 3000), *sweep(("int8", 60), ("auto", 3000))],
)
def test_what_comes_back_is_what_went(loaded: Any, kv: Any, after: int) -> None:
    engine = Engine(loaded, Settings(model=str(POCKET), budget=64, kv_dtype=kv, seed=0))
    ids = torch.randint(10, 900, (20 + after,), generator=torch.Generator().manual_seed(0)).tolist()
    engine.feed(ids[:20])
    before = rows_of(engine.cache, MESSAGE)
    engine.feed(ids[20:])
    held = [(arena.slots.positions >= 0).sum(-1) for arena in engine.cache.arenas]
    lacked = put_back(engine.cache, before)
    assert 0 < lacked <= len(MESSAGE)
    for arena, counts in zip(engine.cache.arenas, held, strict=True):
        positions = arena.slots.positions
        assert torch.equal((positions >= 0).sum(-1), counts), "every head as full as before"
        for head in positions.flatten(0, 2):
            there = head[head >= 0]
            assert len(there.unique()) == len(there), "no token twice in a head"
            assert set(MESSAGE) <= set(there.tolist())
    went, came = numbers(before), numbers(rows_of(engine.cache, MESSAGE))
    assert went.keys() == came.keys()
    assert all((went[layer] - came[layer]).abs().max() < 0.05 for layer in went)
    assert put_back(engine.cache, before) == 0, "all of it is held now"
    engine.unpin(MESSAGE)
    assert engine.cache.protected <= engine.cache.plan.shares.sinks
    engine.feed(ids[:40])


def test_what_is_not_held_cannot_be_copied_and_too_much_not_put_back(loaded: Any) -> None:
    engine = Engine(loaded, Settings(model=str(POCKET), budget=32, seed=0))
    engine.feed(list(range(20, 50)))
    rows = rows_of(engine.cache, range(4, 30))
    engine.feed(list(range(50, 200)))
    with pytest.raises(UsageError, match="not held by every KV head"):
        rows_of(engine.cache, range(4, 30))
    with pytest.raises(UsageError, match="cannot be put back"):
        put_back(engine.cache, rows)
