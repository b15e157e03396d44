"""Feeds caches in tests, and tells what they hold afterwards."""

from typing import Any

import torch
from tiny_models import VOCAB
from torch import Tensor

from h2o_chat import H2OCache
from h2o_chat.cache.forward_call import Step


def tokens(count: int, seed: int = 0, rows: int = 1) -> Tensor:
    """Random ids. [rows, count]"""
    return torch.randint(3, VOCAB, (rows, count), generator=torch.Generator().manual_seed(seed))


def left_padded(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Rows [1, n] of different lengths as (ids, mask), both [R, N]."""
    longest = max(row.shape[1] for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, longest - row.shape[1] :] = row
        mask[i, longest - row.shape[1] :] = 1
    return ids, mask


def positions(mask: Tensor, columns: int) -> Tensor:
    """The positions that `generate()` feeds: padding does not count."""
    return (mask.cumsum(-1) - 1).clamp_min(0)[:, -columns:]


@torch.no_grad()
def ask(model: Any, cache: H2OCache, ids: Tensor, **inputs: Any) -> Tensor:
    """Logits of every column, [R, N, V]; all of it said to the model, however many columns at once."""
    mask = inputs.get("attention_mask")
    real = None if mask is None else mask[:, -ids.shape[1] :].bool()
    cache.prepare(Step(ids.shape[1], prompt=True, real=real))
    return model(ids, past_key_values=cache, **inputs).logits


@torch.no_grad()
def ask_in_place(model: Any, cache: H2OCache, ids: Tensor) -> Tensor:
    """Logits of every column, [R, N, V], of a call at the positions that the cache names, as an engine's."""
    cache.prepare(Step(ids.shape[1]))
    where = cache.position_ids().expand_as(ids)
    return model(ids, position_ids=where, past_key_values=cache).logits


def kept(cache: H2OCache) -> list[list[list[list[int]]]]:
    """`OracleCache.kept` for our cache: positions held, [layers][R][H][...], oldest first."""
    return [
        [[sorted(p for p in head if p >= 0) for head in row] for row in cache.kept(layer).tolist()]
        for layer in range(len(cache.attention_layers))
    ]


def kept_by(cache: H2OCache, row: int = 0) -> list[list[list[int]]]:
    """Positions held by one row: [layers][H][...], oldest first."""
    return [layer[row] for layer in kept(cache)]
