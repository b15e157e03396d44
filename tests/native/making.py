"""Shared by tests of packed files."""

from collections.abc import Callable
from pathlib import Path

Make = Callable[..., Path]
"""`saved(family, name, shard, **changes)`: saves a random tiny model, and says where."""

SIZES = {"head_dim": 16, "hidden_size": 40, "intermediate_size": 72}
"""Neither rows nor columns come in whole tiles and groups."""


def silent(stage: str, share: float | None) -> None:
    """Progress nobody looks at."""
