"""Shared by tests of packed files."""

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

Make = Callable[..., Path]
"""`saved(family, name, shard, **changes)`: saves a random tiny model, and says where."""

SIZES = {"head_dim": 16, "hidden_size": 40, "intermediate_size": 72}
"""Neither rows nor columns come in whole tiles and groups."""


def silent(stage: str, share: float | None) -> None:
    """Progress nobody looks at."""


def by_experts(numbers: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights of a transformers model by the names of its files, which have a tensor of each expert."""
    found = {}
    for name, whole in numbers.items():
        layer, _, own = name.partition(".experts.")
        if not own:
            found[name] = whole
            continue
        for expert, one in enumerate(whole):
            each = (
                {"gate": one[: len(one) // 2], "up": one[len(one) // 2 :]} if "gate" in own else {"down": one}
            )
            found |= {f"{layer}.experts.{expert}.{part}_proj.weight": each[part] for part in each}
    return found
