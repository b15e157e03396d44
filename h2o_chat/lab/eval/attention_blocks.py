"""The attention of a model as transformers computes it, block by block: no L x L matrix is ever held."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

BLOCK = 32
"""Queries of a block."""


@dataclass(frozen=True)
class Block:
    """Attention of the queries `first` .. `first + N - 1`, in every layer."""

    first: int
    probabilities: tuple[Tensor, ...]
    """Per layer [R, Q, N, S]: Q query heads, S = first + N positions; 0 for what comes later."""
    kv_heads: tuple[int, ...]
    """KV heads of each layer."""

    def by_kv_head(self, layer: int) -> Tensor:
        """Summed over the query heads that share a KV head (GQA). [R, H, N, S]"""
        found, heads = self.probabilities[layer], self.kv_heads[layer]
        rows, _, queries, positions = found.shape
        return found.view(rows, heads, -1, queries, positions).sum(2)


@torch.no_grad()
def blocks(model: Any, ids: Tensor, size: int = BLOCK) -> Iterator[Block]:
    """Feeds documents [R, L] that fit the window through stock attention and a cache of everything."""
    cache, first = DynamicCache(), 0
    with _eager(model):
        for part in torch.split(ids, size, 1):
            output = model(part, past_key_values=cache, use_cache=True, output_attentions=True)
            heads = tuple(layer.values.shape[1] for layer in cache.layers)
            yield Block(first, output.attentions, heads)
            first += part.shape[1]


@contextmanager
def _eager(model: Any) -> Iterator[None]:
    """Switches to the one implementation that returns its weights."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)
