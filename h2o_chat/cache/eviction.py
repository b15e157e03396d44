"""Evicts slots: the policy ranks those of all layers together, and the lowest are emptied.

Shapes: L layers, R rows of which r are due, H KV heads, S slots, D head size.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from h2o_chat.cache.arena import Arena, PerRow, evict, in_use_first
from h2o_chat.cache.clock import Pass
from h2o_chat.policies.eviction_order import checked_priority, lowest, protected_priority
from h2o_chat.policies.policies import Slots, output_change_of_heads

RANKED_AT_ONCE_BYTES = 1 << 30
"""Layers are ranked together up to this size of keys in fp32; ranking takes a few times as much memory."""
TOGETHER = 4  # most rows ranked together, unless all are due: scratch memory does not grow with R


@dataclass(frozen=True)
class Kernels:
    """Computations over all slots, for eviction and prompts; a step may bring its own (`Step.kernels`)."""

    output_change: Callable[[Slots], Tensor] = output_change_of_heads
    """slots -> [L, r, H, S], in the dtype of their scores. A policy calls it as `Slots.output_change()`.

    `states["values"]` [L, r, H, S, D or B] in stored form, perhaps not contiguous; `score` [L, r, H, S, G],
    contiguous. S may be slots and a prompt's chunk side by side. An empty slot (position -1) has score 0 and
    any finite values; its result must be 0."""
    attend: Callable[..., Any] | None = None
    """A pass of a prompt in one layer, see `attention.Attend`; None: `LayerStep.attended`."""


TORCH = Kernels()


@dataclass(frozen=True)
class Due:
    """Rows that evict now and are ranked together."""

    rows: slice  # all, or at most TOGETHER that follow each other
    seen: PerRow  # per row: tokens fed to it

    @property
    def of_all(self) -> bool:
        """Whether all rows of the arena are ranked together."""
        return self.rows == slice(None)


@torch.no_grad()
def evict_full_rows(arena: Arena, this_pass: Pass, kernels: Kernels) -> None:
    """Evicts in the rows whose last empty slot has been written."""
    for due in rows_due(arena, this_pass):
        note_priority(arena, due, this_pass, evict_rows(arena, due, kernels))


def evict_rows(arena: Arena, due: Due, kernels: Kernels) -> Tensor:
    """Evicts in these rows without synchronising; returns the policy's priority, [L, r, H, S]."""
    priorities = []
    for layers in layers_together(arena, due.rows):
        part = arena.slots.cut(layers, due.rows)
        priority, to_evict = choose_evicted(arena, part, due, arena.plan.stride, kernels)
        evict(part, to_evict)
        arena.order[layers, due.rows] = in_use_first(part.positions)
        priorities.append(priority)
    return priorities[0] if len(priorities) == 1 else torch.cat(priorities)


def layers_together(arena: Arena, rows: slice) -> Iterator[slice]:
    """Groups of layers that are ranked together: one, or RANKED_AT_ONCE_BYTES of keys in fp32."""
    layers, count = arena.shape[0], arena.slots.positions[:1, rows].numel() * arena.layer_shape.key * 4
    at_once = max(1, RANKED_AT_ONCE_BYTES // count)
    return (slice(first, first + at_once) for first in range(0, layers, at_once))


def note_priority(arena: Arena, due: Due, this_pass: Pass, priority: Tensor) -> None:
    """Keeps the policy's priority for observers, who look at it right after the step."""
    for at, row in enumerate(range(len(this_pass.count))[due.rows]):
        arena.last_priority[row] = (this_pass.seen[row], priority[:, at])


def rows_due(arena: Arena, this_pass: Pass) -> Iterator[Due]:
    """Groups of rows that evict: all rows, or runs of at most TOGETHER."""
    mine = this_pass.evicts
    if len(mine) == len(this_pass.count):
        yield Due(slice(None), this_pass.seen)
        return
    for _, run in groupby(enumerate(mine), lambda one: (one[1] - one[0], one[0] // TOGETHER)):
        rows = [row for _, row in run]
        some = slice(rows[0], rows[-1] + 1)
        yield Due(some, this_pass.seen[some])


def choose_evicted(
    arena: Arena, part: Slots, due: Due, count: int, kernels: Kernels
) -> tuple[Tensor, Tensor]:
    """The policy's priority [l, r, H, S], and the `count` slots to evict, [l, r, H, count].

    The attention that these had been receiving is added to `arena.lost`.

    Args:
        part: the slots of these rows, perhaps with a prompt's chunk side by side.
    """
    priority = priority_of(arena, part, kernels)
    recent_from = arena.per_row(due.seen) - arena.plan.shares.recent
    unseen_below = visible_from(arena, part.layers, due.seen)
    to_evict = lowest(protected_priority(priority, part, recent_from, unseen_below), part.positions, count)
    if arena.plan.observe:
        arena.lost[due.rows] += part.lately.gather(3, to_evict).sum((0, 2, 3)).double()
    return priority, to_evict


def priority_of(arena: Arena, part: Slots, kernels: Kernels = TORCH) -> Tensor:
    """The policy's priority of the slots. [L, r, H, S]"""
    policy = arena.plan.policy
    states = {name: part.states[name] for name in (*Slots.RANKED_BY, *policy.looks_at)}
    # Contiguous copies: products of strided rows differ in their last bits from those of a row alone. Values,
    # the largest state, are copied only if the policy asks for them.
    states |= {name: state.contiguous() for name, state in states.items() if name != "values"}
    looked_at = Slots(arena.plan.budget, part.layers, **states)
    looked_at.dequantised = lambda stored: arena.dequantised(stored.contiguous())
    looked_at.output_change_kernel = kernels.output_change
    return checked_priority(policy, looked_at)


def visible_from(arena: Arena, layers: Sequence[int], seen: PerRow) -> Tensor:
    """Position before which no query from `seen` on sees anything (sliding windows). [l or 1, r, 1, 1]"""
    places, when = [arena.layers.index(layer) for layer in layers], arena.per_row(seen)
    all_of_it = torch.zeros_like(when)
    if not any(arena.windows[at] for at in places):
        return all_of_it[None]
    return torch.stack([arena.visible_from(at, when) if arena.windows[at] else all_of_it for at in places])
