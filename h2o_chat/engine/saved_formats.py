"""Older formats of saved caches, converted one by one; what is wrong with a file."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from h2o_chat.policies.references import named
from h2o_chat.policies.shares import MOST_TOKENS


class Wrong(Exception):
    """Something is wrong with a file."""


def count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < MOST_TOKENS:
        raise Wrong(f"{seen(value)} is no count")
    return value


def seen(value: Any) -> str:
    """A value of a header, which may be anything, for an error."""
    return ascii(value)[:60]


_Contents = tuple[dict[str, Any], dict[str, Tensor]]


def _from_5(about: dict[str, Any], tensors: dict[str, Tensor], groups: int) -> _Contents:
    """Format 5 had tensors [R, H, S, ...] per layer, and the sum of the scores apart from those by head."""
    same = ("keys", "values", "positions", "protected")
    renamed = {"recent": "receiving", "prompt": "given", "clamped": "far"} | {name: name for name in same}
    layers = sum(name.endswith(".positions") for name in tensors)
    new = {name: tensor for name, tensor in tensors.items() if "." not in name}
    for layer in range(layers):
        for name, old in renamed.items():
            new[f"{layer}.{name}"] = tensors[f"{layer}.{old}"][None]
        score, by_head = tensors[f"{layer}.score"], tensors[f"{layer}.by_head"]
        if not by_head.shape[-1]:  # only their sum counted
            width = named(about["session"]["policy"]).scores.width(groups)
            by_head = score.new_zeros(*score.shape, width)
            by_head[..., 0] = score
        new[f"{layer}.score"] = by_head[None]
        new[f"{layer}.lost"] = tensors[f"{layer}.lost"]
    fed = count(about["fed"])
    clock = None
    if layers:
        if not all(tensors[f"{layer}.positions"].numel() for layer in range(layers)):
            raise Wrong("it has no slots")
        held = max(int((tensors[f"{layer}.positions"] >= 0).sum(-1).max()) for layer in range(layers))
        base = int(tensors["0.base"][0])
        counts = fed, held, base, count(about["near_from"])
        clock = dict(zip(("seen", "held", "base", "near_from"), counts, strict=True))
    about = about | {"format": 6, "parts": [[layer] for layer in range(layers)], "clock": clock}
    return about, new


def _from_6(about: dict[str, Any], tensors: dict[str, Tensor], groups: int) -> _Contents:
    """Format 6 had other names for two things."""
    new = {name.replace(".recent", ".lately"): tensor for name, tensor in tensors.items()}
    clock = about["clock"] and about["clock"] | {"in_use": about["clock"]["held"]}
    return about | {"format": 7, "clock": clock}, new


MIGRATIONS: dict[int, Callable[..., _Contents]] = {5: _from_5, 6: _from_6}
"""From the format that is read to the next one."""
