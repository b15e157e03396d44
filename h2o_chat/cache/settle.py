"""Evicts slots: compares keys, lets the policy rank all layers together, and empties the lowest.

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
from h2o_chat.cache.turning import before_rope
from h2o_chat.policies.frame import lowest, opinion, priorities
from h2o_chat.policies.novelty import distinctness, novelty
from h2o_chat.policies.policies import Slots, mean_held, output_change_of_heads
from h2o_chat.policies.shares import MOST_TOKENS

TOGETHER_BYTES = 1 << 30
"""Layers are ranked together up to this size of keys in fp32; ranking takes a few times as much memory."""
TOGETHER = 4
"""Most rows ranked together, unless all are due: scratch memory does not grow with R."""


def compare_keys(arena: Arena, part: Slots, index: Tensor) -> dict[str, Tensor]:
    """Distinctness, and novelty if the policy uses it, of kept keys at rotation `index` [L, r, H, S]."""
    unit = before_rope(arena, arena.numbers(part.keys), index)
    unit.masked_fill_((part.positions < 0).unsqueeze(-1), 0)
    found = {"distinctness": distinctness(unit)}
    if arena.plan.policy.pairs:
        found["novelty"] = novelty(unit)
    return found


@dataclass(frozen=True)
class Kernels:
    """Computations over all slots, for eviction and prompts; a step may bring its own (`Step.kernels`)."""

    compare: Callable[[Arena, Slots, Tensor], dict[str, Tensor]] = compare_keys
    """(arena, slots, rotation index of their keys [L, r, H, S]) -> changed states, [L, r, H, S] each.

    Keys are in their stored form, perhaps not contiguous; some slots are empty."""
    change: Callable[[Slots], Tensor] = output_change_of_heads
    """slots -> [L, r, H, S], in the dtype of their scores. A policy calls it as `Slots.change()`.

    `states["values"]` [L, r, H, S, D or B] in stored form, perhaps not contiguous; `score` [L, r, H, S, G],
    contiguous. S may be slots and a prompt's chunk side by side. An empty slot (position -1) has score 0 and
    any finite values; its result must be 0."""
    attend: Callable[..., Any] | None = None
    """A pass of a prompt in one layer, see `attention.Attend`; None: `LayerStep.attended`."""


TORCH = Kernels()


@dataclass(frozen=True)
class Due:
    """Rows that are ranked together."""

    rows: slice  # all, or at most TOGETHER that follow each other
    compares: bool  # their keys are compared before
    seen: PerRow  # per row: tokens fed to it
    compared: PerRow  # per row: tokens from this position on were not compared yet

    @property
    def of_all(self) -> bool:
        """Whether all rows of the arena are ranked together."""
        return self.rows == slice(None)


@torch.no_grad()
def settle(arena: Arena, now: Pass, kernels: Kernels) -> None:
    """Evicts in the rows whose last empty slot has been written."""
    for due in rows_due(arena, now):
        ranking = settle_rows(arena, due, kernels)
        note_ranking(arena, due, now, ranking)


def settle_rows(arena: Arena, due: Due, kernels: Kernels) -> Tensor:
    """Evicts in these rows without synchronising; returns the policy's ranking, [L, r, H, S]."""
    rankings = []
    for layers in layers_together(arena, due.rows):
        part = arena.slots.cut(layers, due.rows)
        ranking, going = choose(arena, part, due, arena.plan.stride, kernels)
        evict(part, going)
        arena.order[layers, due.rows] = in_use_first(part.positions)
        rankings.append(ranking)
    return rankings[0] if len(rankings) == 1 else torch.cat(rankings)


def layers_together(arena: Arena, rows: slice) -> Iterator[slice]:
    """Groups of layers that are ranked together: at most TOGETHER_BYTES of keys in fp32, or one layer."""
    layers, count = arena.shape[0], arena.slots.positions[:1, rows].numel() * arena.layer_shape.key * 4
    at_once = max(1, TOGETHER_BYTES // count)
    return (slice(first, first + at_once) for first in range(0, layers, at_once))


def note_ranking(arena: Arena, due: Due, now: Pass, ranking: Tensor) -> None:
    """Keeps the policy's ranking for observers, who look at it right after the step."""
    for at, row in enumerate(range(len(now.count))[due.rows]):
        arena.ranked[row] = (now.seen[row], ranking[:, at])


def rows_due(arena: Arena, now: Pass) -> Iterator[Due]:
    """Groups of rows that settle: all rows, or runs of at most TOGETHER."""
    compared = now.compares if arena.plan.policy.keys else ()
    for compares in (True, False):
        mine = [row for row in now.settles if (row in compared) == compares]
        if len(mine) == len(now.count):
            yield Due(slice(None), compares, now.seen, now.compared)
            return
        for _, run in groupby(enumerate(mine), lambda one: (one[1] - one[0], one[0] // TOGETHER)):
            rows = [row for _, row in run]
            some = slice(rows[0], rows[-1] + 1)
            yield Due(some, compares, now.seen[some], now.compared[some])


def choose(arena: Arena, part: Slots, due: Due, count: int, kernels: Kernels) -> tuple[Tensor, Tensor]:
    """The policy's ranking [l, r, H, S], and the `count` slots to evict, [l, r, H, count].

    The attention that these had been receiving is added to `arena.lost`.

    Args:
        part: the slots of these rows, perhaps with a prompt's chunk side by side. Results of comparing keys
            are written into it.
    """
    if due.compares:
        for name, numbers in kernels.compare(arena, part, arena.held_indices(part, due.rows)).items():
            part.states[name].copy_(numbers)
    ranking = rank(arena, part, None if due.compares else due.compared, kernels)
    going = lowest(framed(arena, part, ranking, due.seen), part.positions, count)
    if arena.plan.observe:
        arena.lost[due.rows] += part.lately.gather(3, going).sum((0, 2, 3)).double()
    return ranking, going


def rank(arena: Arena, part: Slots, compared: PerRow | None, kernels: Kernels = TORCH) -> Tensor:
    """The policy's ranking of the slots. [L, r, H, S]

    Args:
        compared: per row, the position from which on keys were not compared yet; None: all were.
    """
    policy = arena.plan.policy
    states = {name: part.states[name] for name in (*Slots.RANKED_BY, *policy.looks_at)}
    # Contiguous copies: products of strided rows differ in their last bits from those of a row alone. Values,
    # the largest state, are copied only if the policy asks for them.
    states |= {name: state.contiguous() for name, state in states.items() if name != "values"}
    if policy.keys and compared is not None:  # keys not compared yet get the mean of the others
        known = (part.positions >= 0) & (part.positions < arena.per_row(compared))
        for name in ("distinctness", "novelty"):
            mean = mean_held(states[name], known.to(states[name].dtype))
            states[name] = torch.where(known, states[name], mean)
    looked_at = Slots(arena.plan.budget, part.layers, **states)
    looked_at.numbers = lambda stored: arena.numbers(stored.contiguous())
    looked_at.kernel = kernels.change
    return opinion(policy, looked_at)


def framed(arena: Arena, part: Slots, ranking: Tensor, seen: PerRow) -> Tensor:
    """Priorities of the slots: the lowest are evicted first. [L, r, H, S]

    Args:
        seen: per row, the tokens fed to it.
    """
    recent_from = arena.per_row(seen) - arena.plan.shares.recent
    return priorities(ranking, part, recent_from, visible_from(arena, part.layers, seen))


def visible_from(arena: Arena, layers: Sequence[int], seen: PerRow) -> Tensor:
    """Position before which no query from `seen` on sees anything (sliding windows). [l or 1, r, 1, 1]"""
    windows = [arena.windows[arena.layers.index(layer)] for layer in layers]
    if not any(windows):
        return torch.zeros_like(arena.per_row(seen))[None]
    at = arena.per_row(seen)
    return torch.stack([(at - (window or MOST_TOKENS) + 1).clamp_min(0) for window in windows])
