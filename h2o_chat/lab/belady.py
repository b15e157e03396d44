"""Policies that see the future: what could be kept if it were known what will be asked for.

Belady's rule for caches (IBM Systems Journal 5(2), 1966) gives up what is used again latest. Two passes
over a document: a full cache records which attention every query gives to every token, then a bounded one
decides with that in hand. The attention is that of the full cache, and one token is judged at a time, so this
is a reference, not a proven bound.

Shapes: R documents of L tokens, H KV heads, G query heads per KV head, S slots.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from h2o_chat.base.config import OFFLINE
from h2o_chat.policies.named import named
from h2o_chat.policies.policies import Policy, Slots, oldest_first
from h2o_chat.transformers_cache.cache import H2OCache

BLOCK = 64
"""Queries that attend at once."""
TABLE_BYTES = 1 << 29
"""What the tables of the documents measured together may hold."""


BELADY = {
    # Least attention still to come; farthest next use.
    name: Policy(oldest_first, forget=1.0, sinks=0, heavy=True, recent=0.0, name=name)
    for name in OFFLINE
}
"""By name; `knowing` gives them their priority."""


def any_policy(name: str) -> Policy:
    """A policy of any name, for its shares of a budget."""
    return BELADY[name] if name in BELADY else named(name)


class Foresight(H2OCache):
    """An `H2OCache` that knows the documents it will be fed, from `foresee`."""

    def __init__(self, *args: Any, policy: str, future: list[Tensor], **plan: Any) -> None:
        super().__init__(*args, policy=knowing(BELADY[policy], future), **plan)


def knowing(policy: Policy, worth: list[Tensor]) -> Policy:
    """The policy with its priorities read from a table per layer, [R, H, L, L]: token by query."""

    def of_layer(table: Tensor, positions: Tensor) -> Tensor:
        now = positions.amax(-1).long()[..., None, None]  # the newest token is still held
        row = table.gather(2, now.expand(-1, -1, 1, table.shape[-1])).squeeze(2)  # [R, H, L]
        return row.gather(-1, positions.clamp_min(0).long())

    def priority(slots: Slots) -> Tensor:
        found = [of_layer(worth[layer], at) for layer, at in zip(slots.layers, slots.positions, strict=True)]
        return torch.stack(found).to(slots.score.dtype)

    return replace(policy, priority=priority)


def foresee(model: Any, ids: Tensor, heads: int, policy: str) -> list[Tensor]:
    """What each token is worth after each query, per layer: [R, H, L, L], query by token.

    `belady`: the attention that it will still receive. `belady-next`: minus the distance to its next use, a
    query that gives it more than its fair share.
    """
    return [
        future_attention(given) if policy == "belady" else -next_use(given, groups)
        for given, groups in attended(model, ids, heads)
    ]


@torch.no_grad()
def attended(model: Any, ids: Tensor, heads: int) -> list[tuple[Tensor, int]]:
    """Attention that every query gave to every token, [R, H, L, L], and G, per layer."""
    rows, length = ids.shape
    cache = Cache(layer_class_to_replicate=DynamicLayer)
    tables: list[tuple[Tensor, int]] = []
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")  # the one that returns what it attended to
    try:
        for start in range(0, length, BLOCK):
            block = ids[:, start : start + BLOCK]
            at = torch.arange(start, start + block.shape[1], device=ids.device)[None].expand_as(block)
            output = model(
                block, position_ids=at, past_key_values=cache, use_cache=True, output_attentions=True
            )
            for layer, weights in enumerate(output.attentions):
                groups = weights.shape[1] // heads
                if start == 0:
                    tables.append((weights.new_zeros(rows, heads, length, length), groups))
                summed = weights.view(rows, heads, groups, *weights.shape[2:]).sum(2)
                tables[layer][0][:, :, start : start + block.shape[1], : summed.shape[-1]] = summed
    finally:
        model.set_attn_implementation(implementation)
    return tables


def future_attention(given: Tensor) -> Tensor:
    """[..., L queries, L tokens]: the sum over later queries."""
    return given.flip(-2).cumsum(-2).flip(-2) - given


def next_use(given: Tensor, groups: int) -> Tensor:
    """[..., L queries, L tokens]: position of the next query that uses a token; L where none will."""
    length = given.shape[-1]
    seen = torch.arange(1, length + 1, device=given.device, dtype=given.dtype)[:, None]
    when = torch.arange(length, device=given.device, dtype=given.dtype)[:, None].expand_as(given)
    when = when.masked_fill(given * seen <= groups, length)
    soonest = when.flip(-2).cummin(-2).values.flip(-2)  # this query's own use included
    never = torch.full_like(soonest[..., :1, :], length)
    return torch.cat((soonest[..., 1:, :], never), -2)


def rows_at_once(layers: int, heads: int, length: int) -> int:
    """Documents whose tables fit together."""
    return max(1, TABLE_BYTES // (4 * layers * heads * length * length))
