"""The layers of a model, as transformers' caches list them.

A layer attends, or keeps a state (convolution, recurrence), or does both, or does neither. Only layers that
attend have slots, and are numbered; a layer may attend to the slots of an earlier one.
"""

from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from transformers.cache_utils import get_layer_types_and_kwargs

from h2o_chat.base.errors import ModelError, UsageError

_ATTENDS = {
    "full_attention": (True, False),
    "sliding_attention": (True, False),
    "chunked_attention": (True, False),
    "hybrid": (True, True),
    "hybrid_sliding": (True, True),
    "conv": (False, True),
    "linear_attention": (False, True),
    "dummy": (False, False),
}
"""(has slots, has states) by transformers' name of a layer. Other layers keep every token in some form."""


@dataclass(frozen=True)
class Kind:
    """One layer, as transformers counts them."""

    name: str  # transformers' name of its type
    window: int | None = None  # positions that a query sees, itself included; of a chunk if it is chunked
    states: int = 1  # number of states of each type
    held: dict[str, tuple[tuple[int, ...], torch.dtype]] = field(default_factory=dict)
    """Shape without rows, and dtype, of each tensor of its states."""
    latent: bool = False  # its cache gets latents, of which keys and values are made later (DeepSeek)
    sharers: int = 0  # later layers that attend to its slots
    shape: tuple[int, int, int, int] = (0, 0, 0, 0)  # KV heads, query heads of each, sizes of key and value

    @property
    def attends(self) -> bool:
        return _ATTENDS[self.name][0]

    @property
    def keeps_state(self) -> bool:
        return _ATTENDS[self.name][1]

    @property
    def chunked(self) -> bool:
        return self.name == "chunked_attention"

    @property
    def state_bytes(self) -> int:
        """Bytes of its states of one row."""
        return sum(prod(shape) * dtype.itemsize for shape, dtype in self.held.values())


ORDINARY = Kind("full_attention")


def require_plain(config: Any) -> None:
    """Raises UsageError if an H2OCache that does not know the model cannot compute some of its layers."""
    others = {kind.name for kind in kinds_of(config)} - {"full_attention", "sliding_attention"}
    if others:
        raise UsageError(
            f"This model has layers of the type {', '.join(sorted(others))}, which an H2OCache has to know.",
            "Make it with H2OCache(budget, model=model).",
        )


def kinds_of(config: Any) -> tuple[Kind, ...]:
    """The layers that a configuration names; ModelError: one is neither bounded nor of a fixed size."""
    types, keywords = get_layer_types_and_kwargs(config.get_text_config(decoder=True))
    for name in types:
        if name not in _ATTENDS:
            raise ModelError(
                f"Layers of the type {name!r} keep something of every token, which cannot be bounded.",
                "Choose a model whose layers attend in the usual way: h2o-chat models families",
            )
    return tuple(
        Kind(name, more.get("sliding_window"), more.get("number_of_states", 1))
        for name, more in zip(types, keywords, strict=True)
    )
