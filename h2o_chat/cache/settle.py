"""Eviction: the policy ranks the slots of all layers at once, and the lowest go.

Shapes: L layers, R rows of which r are due, H KV heads, S slots, D head size.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from h2o_chat.cache.arena import Arena, PerRow, give_up, in_use_first
from h2o_chat.cache.clock import Pass
from h2o_chat.policies.frame import lowest, opinion, priorities
from h2o_chat.policies.policies import Slots, output_change_of_heads
from h2o_chat.policies.shares import MOST_TOKENS

TOGETHER_BYTES = 1 << 30
"""Layers are ranked together up to so many bytes of keys in fp32; ranking takes a few times as much."""
TOGETHER = 4
"""Rows ranked at once, unless all are: what that takes of memory for a moment does not grow with R."""


@dataclass(frozen=True)
class Kernels:
    """What is computed of all slots: to choose who stays, and for a prompt. A step may bring its own
    (`Step.kernels`)."""

    change: Callable[[Slots], Tensor] = output_change_of_heads
    """slots -> [L, r, H, S], of the dtype of their scores. Reached by a policy as `Slots.change()`.

    `states["values"]` [L, r, H, S, D or B] as stored, not always contiguous; `score` [L, r, H, S, G],
    contiguous. S may be slots and a prompt's chunk side by side. Of an empty slot (position -1) the score
    is 0, and so must be what is returned; its values may be anything finite."""
    attend: Callable[..., Any] | None = None
    """A pass of a prompt in one layer, as `attention.Attend` has it; None: `LayerStep.attended`."""


TORCH = Kernels()


@dataclass(frozen=True)
class Due:
    """Rows that are ranked together."""

    rows: slice  # all, or at most TOGETHER that follow each other
    seen: PerRow  # of each of these rows: tokens fed to it

    @property
    def of_all(self) -> bool:
        """All rows of the arena are ranked together."""
        return self.rows == slice(None)


@torch.no_grad()
def settle(arena: Arena, now: Pass, kernels: Kernels) -> None:
    """Gives up slots in the rows whose last empty slot has been written."""
    for due in rows_due(arena, now):
        ranking = settle_rows(arena, due, kernels)
        note_ranking(arena, due, now, ranking)


def settle_rows(arena: Arena, due: Due, kernels: Kernels) -> Tensor:
    """Gives up slots in these rows; the policy's ranking of them, [L, r, H, S]. Reads no value."""
    rankings = []
    for layers in layers_together(arena, due.rows):
        part = arena.slots.cut(layers, due.rows)
        ranking, going = choose(arena, part, due, arena.plan.stride, kernels)
        give_up(part, going)
        arena.order[layers, due.rows] = in_use_first(part.positions)
        rankings.append(ranking)
    return rankings[0] if len(rankings) == 1 else torch.cat(rankings)


def layers_together(arena: Arena, rows: slice) -> Iterator[slice]:
    """Layers that are ranked together, at most TOGETHER_BYTES of keys in fp32, but one at least."""
    layers, count = arena.shape[0], arena.slots.positions[:1, rows].numel() * arena.layer_shape.key * 4
    at_once = max(1, TOGETHER_BYTES // count)
    return (slice(first, first + at_once) for first in range(0, layers, at_once))


def note_ranking(arena: Arena, due: Due, now: Pass, ranking: Tensor) -> None:
    """Keeps what the policy ranked by, for whoever looks right after it."""
    for at, row in enumerate(range(len(now.count))[due.rows]):
        arena.ranked[row] = (now.seen[row], ranking[:, at])


def rows_due(arena: Arena, now: Pass) -> Iterator[Due]:
    """Rows that settle, all or at most TOGETHER that follow each other."""
    mine = now.settles
    if len(mine) == len(now.count):
        yield Due(slice(None), now.seen)
        return
    for _, run in groupby(enumerate(mine), lambda one: (one[1] - one[0], one[0] // TOGETHER)):
        rows = [row for _, row in run]
        some = slice(rows[0], rows[-1] + 1)
        yield Due(some, now.seen[some])


def choose(arena: Arena, part: Slots, due: Due, count: int, kernels: Kernels) -> tuple[Tensor, Tensor]:
    """The policy's ranking [l, r, H, S], and the `count` slots that go, [l, r, H, count].

    What those had been receiving is added to `arena.lost`.

    Args:
        part: of these rows: slots, or slots and a prompt's chunk side by side.
    """
    ranking = rank(arena, part, kernels)
    going = lowest(framed(arena, part, ranking, due.seen), part.positions, count)
    if arena.plan.observe:
        arena.lost[due.rows] += part.lately.gather(3, going).sum((0, 2, 3)).double()
    return ranking, going


def rank(arena: Arena, part: Slots, kernels: Kernels = TORCH) -> Tensor:
    """What the policy makes of the slots. [L, r, H, S]"""
    policy = arena.plan.policy
    states = {name: part.states[name] for name in (*Slots.RANKED_BY, *policy.looks_at)}
    # Of some rows copies: products of what lies apart have other last bits than those of a row alone. Of
    # values, which are most of it, only where they are asked for.
    states |= {name: state.contiguous() for name, state in states.items() if name != "values"}
    looked_at = Slots(arena.plan.budget, part.layers, **states)
    looked_at.numbers = lambda stored: arena.numbers(stored.contiguous())
    looked_at.kernel = kernels.change
    return opinion(policy, looked_at)


def framed(arena: Arena, part: Slots, ranking: Tensor, seen: PerRow) -> Tensor:
    """What is given up first has the lowest. [L, r, H, S]

    Args:
        seen: of each row, the tokens fed to it.
    """
    recent_from = arena.per_row(seen) - arena.plan.shares.recent
    return priorities(ranking, part, recent_from, visible_from(arena, part.layers, seen))


def visible_from(arena: Arena, layers: Sequence[int], seen: PerRow) -> Tensor:
    """Positions before this are seen by no later query, which stands at `seen`. [l or 1, r, 1, 1]"""
    windows = [arena.windows[arena.layers.index(layer)] for layer in layers]
    if not any(windows):
        return torch.zeros_like(arena.per_row(seen))[None]
    at = arena.per_row(seen)
    return torch.stack([(at - (window or MOST_TOKENS) + 1).clamp_min(0) for window in windows])
