"""The literal H2O of `oracle.py` for layers of every kind: windows, chunks, sinks, latents, shared slots.

One plain list of tokens per layer and KV head, one row, one token at a time; no line shared with `h2o_chat`.
A layer that attends to tokens of an earlier one adds to their scores; a token goes when the next one comes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from oracle import Held
from torch import Tensor
from transformers import AttentionInterface, DynamicCache
from transformers.cache_utils import DynamicLayer

ATTENTION = "any-oracle"


@dataclass(eq=False)
class Layer:
    """The tokens that each KV head of a layer holds, oldest first."""

    budget: int
    first_seen: Callable[[int], int]
    """Position of the first token that a query at a position sees."""
    heads: list[list[Held]] = field(default_factory=list)
    seen: int = 0

    def add(self, keys: Tensor, values: Tensor) -> None:
        """A new token, keys and values [H, D] each."""
        self.evict()
        self.heads = self.heads or [[] for _ in keys]
        for head, key, value in zip(self.heads, keys, values, strict=True):
            head.append(Held(self.seen, key, value))
        self.seen += 1

    def evict(self) -> None:
        """Over budget goes what no later query sees, else the lowest score outside of the newest half."""
        for head in self.heads:
            if len(head) <= self.budget:
                continue
            unseen = [token for token in head if token.position < self.first_seen(self.seen)]
            older = head[: len(head) - self.budget // 2]
            head.remove(unseen[0] if unseen else min(older, key=lambda token: (token.score, token.position)))

    def attend(self, queries: Tensor, scaling: float, softcap: float | None, sinks: Tensor | None) -> Tensor:
        """Queries [H * G, D] -> [H * G, D of values]."""
        outputs, group = [], len(queries) // len(self.heads)
        for number, query in enumerate(queries):
            seen = [
                token
                for token in self.heads[number // group]
                if token.position >= self.first_seen(self.seen - 1)
            ]
            logits = torch.stack([query @ token.key * scaling for token in seen])
            if softcap is not None:
                logits = softcap * torch.tanh(logits / softcap)
            if sinks is not None:
                logits = torch.cat((logits, sinks[number : number + 1]))
            shares = logits.softmax(-1)[: len(seen)]
            for token, share in zip(seen, shares.tolist(), strict=True):
                token.score += share
            outputs.append(sum(share * token.value for share, token in zip(shares, seen, strict=True)))
        return torch.stack(outputs)


class LiteralCache(DynamicCache):
    """Stock's cache for layers that do not attend; tokens of the others stand in `literal`."""

    def __init__(self, model: Any, budget: int) -> None:
        super().__init__(config=model.config)
        self.literal: dict[int, Layer] = {}
        self.fed = 0
        for number, layer in enumerate(self.layers):
            if isinstance(layer, DynamicLayer):
                window = getattr(layer, "sliding_window", None)
                types = getattr(model.config.get_text_config(), "layer_types", None) or [""] * len(
                    self.layers
                )
                chunked = types[number] == "chunked_attention"
                self.literal[number] = Layer(budget, _first_seen(window, chunked))

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> Any:
        _due.append(self.literal[layer_idx])
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return max(layer.seen for layer in self.literal.values())

    def kept(self) -> list[list[list[list[int]]]]:
        """Positions held, oldest first: [layers][1][H][...]."""
        for layer in self.literal.values():
            layer.evict()
        return [[[[t.position for t in head] for head in layer.heads]] for layer in self.literal.values()]


_due: list[Layer] = []  # the layer whose token came last, until its attention
_of_keys: list[tuple[Tensor, Layer]] = []  # whose keys these are: later layers may attend to them


def _first_seen(window: int | None, chunked: bool) -> Callable[[int], int]:
    if window is None:
        return lambda at: 0
    return (lambda at: at // window * window) if chunked else (lambda at: max(0, at - window + 1))


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """One token of one row: query [1, H * G, 1, D] -> [1, 1, H * G, D]."""
    if _due:
        layer = _due.pop()
        layer.add(key[0, :, 0], value[0, :, 0])
        _of_keys[:] = [*_of_keys[-64:], (key, layer)]
    else:
        layer = next(layer for known, layer in _of_keys if known is key)
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    return layer.attend(query[0, :, 0], scaling, softcap, s_aux)[None, None], None


AttentionInterface.register(ATTENTION, attention)  # type: ignore[arg-type]
