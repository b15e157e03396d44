"""Slots are given up: keys are compared, the policy ranks all layers at once, the lowest go.

Shapes: L layers, R rows of which r are due, H KV heads, S slots, D head size.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from h2o_chat.cache.arena import Arena, Ranked, along, in_use_first
from h2o_chat.cache.clock import Clock, Pass
from h2o_chat.cache.novelty import distinctness, novelty
from h2o_chat.cache.policies import Slots, lowest, mean_held, opinion, output_change_of_heads, priorities
from h2o_chat.cache.rope import MOST_TOKENS
from h2o_chat.cache.state import STATES
from h2o_chat.cache.turning import before_rope

TOGETHER = 4
"""Rows ranked at once, unless all are: what that takes of memory for a moment does not grow with R."""


def compare_keys(arena: Arena, part: Slots, index: Tensor) -> dict[str, Tensor]:
    """How kept keys at rotation index [L, r, H, S] stand among one another, by the states that say so."""
    unit = before_rope(arena, arena.numbers(part.keys), index)
    unit.masked_fill_((part.positions < 0).unsqueeze(-1), 0)
    found = {"distinctness": distinctness(unit)}
    if arena.plan.policy.pairs:
        found["novelty"] = novelty(unit)
    return found


@dataclass(frozen=True)
class Kernels:
    """What is computed of all slots to choose who stays; a step may bring its own (`Step.kernels`)."""

    compare: Callable[[Arena, Slots, Tensor], dict[str, Tensor]] = compare_keys
    """(arena, slots, rotation index of their keys [L, r, H, S]) -> states that change, [L, r, H, S] each.

    Keys as they are stored, not always contiguous; empty slots among them."""
    change: Callable[[Slots], Tensor] = output_change_of_heads
    """slots -> [L, r, H, S], of the dtype of their scores. Reached by a policy as `Slots.change()`.

    `values` [L, r, H, S, D] are numbers, `score` [L, r, H, S, G]; both contiguous. S may be slots and a
    prompt's chunk side by side. Of an empty slot (position -1) the score is 0, and so must be what is
    returned; its values may be anything finite."""


TORCH = Kernels()


@torch.no_grad()
def settle(arena: Arena, now: Pass, kernels: Kernels) -> None:
    """Gives up slots in the rows whose last empty slot has been written."""
    due = [row for row in now.settles if row in now.compares]
    others = [row for row in now.settles if row not in now.compares]
    for rows, compares in ((due, arena.plan.policy.keys), (others, False)):
        for run in _runs(rows, arena.shape[1]):
            _settle_rows(arena, run, now, kernels, compares)


def _runs(rows: Sequence[int], of: int) -> Iterator[range]:
    """Rows that follow each other, at most TOGETHER; or all there are."""
    if len(rows) == of:
        yield range(of)
        return
    start = 0
    for at, row in enumerate(rows, 1):
        if at == len(rows) or rows[at] != row + 1 or at - start == TOGETHER:
            yield range(rows[start], row + 1)
            start = at


def _settle_rows(arena: Arena, rows: range, now: Pass, kernels: Kernels, compares: bool) -> None:
    """The policy ranks, and `stride` slots of every layer and head of these rows are given up."""
    which = slice(rows.start, rows.stop)
    part = arena.cut(rows=which)
    seen = [now.first[row] + now.count[row] for row in rows]
    if compares:
        found = kernels.compare(arena, part, arena.held_indices(rows=which))
        for name, numbers in found.items():
            part.states[name].copy_(numbers)
    ranking = rank(arena, part, [now.compared[row] for row in rows], kernels)
    arena.ranked.update((row, Ranked(seen[at], ranking[:, at])) for at, row in enumerate(rows))
    priority = framed(arena, part, ranking, seen, visible_from(arena, seen))
    going = lowest(priority, part.positions, arena.plan.stride)  # [L, r, H, stride]
    if arena.plan.observe:
        arena.lost[which] += part.lately.gather(3, going).sum((0, 2, 3)).double()
    for state in STATES:
        if state.dtype != "kv":  # what lies there is masked, and overwritten by the next token
            mine = part.states[state.name]
            mine.scatter_(3, along(going, mine), state.empty)
    arena.order[:, which] = in_use_first(part.positions)


def rank(arena: Arena, part: Slots, compared: Sequence[int], kernels: Kernels = TORCH) -> Tensor:
    """What the policy makes of the slots. [L, r, H, S]

    Args:
        compared: of each row, the position from which on keys were not compared yet.
    """
    return opinion(arena.plan.policy, _looked_at(arena, part, compared, kernels))


def framed(arena: Arena, part: Slots, ranking: Tensor, seen: Sequence[int], visible_from: Tensor) -> Tensor:
    """What is given up first has the lowest. [L, r, H, S]

    Args:
        seen: of each row, the tokens fed to it.
    """
    recent = arena.plan.shares.recent
    recent_from = arena.per_row([tokens - recent for tokens in seen])
    return priorities(ranking, part, part.protected, recent_from, visible_from)


def _looked_at(arena: Arena, part: Slots, compared: Sequence[int], kernels: Kernels) -> Slots:
    """What the policy may look at: values as numbers; keys not compared yet as the mean of the others."""
    # Of some rows copies: products of what lies apart have other last bits than those of a row alone.
    names = (*Slots.RANKED_BY, *arena.plan.policy.looks_at)
    states = {name: part.states[name].contiguous() for name in names}
    states["values"] = arena.numbers(states["values"])
    if arena.plan.policy.keys:
        held = part.positions >= 0
        known = held & (part.positions < arena.per_row(compared))
        for name in ("distinctness", "novelty"):
            states[name] = torch.where(known, states[name], mean_held(states[name], known))
    slots = Slots(arena.slots.budget, part.layers, **states)
    slots.kernel = kernels.change
    return slots


def ranking(arena: Arena, clocks: Sequence[Clock], row: int) -> Tensor:
    """What the policy ranks the slots of a row by: at the settle just now, else it is asked. [L, H, S]"""
    ranked = arena.ranked.get(row)
    if ranked is not None and ranked.seen == clocks[row].seen:
        return ranked.ranking
    return rank(arena, arena.slots, [clock.compared for clock in clocks])[:, row]


def visible_from(arena: Arena, seen: Sequence[int]) -> Tensor:
    """Positions before this are seen by no later query, which stands at `seen`. [L or 1, r, 1, 1]"""
    if not any(arena.windows):
        return arena.per_row([0] * len(seen))[None]
    windows = [MOST_TOKENS if window is None else window for window in arena.windows]
    return torch.stack([arena.per_row([max(0, at - window + 1) for at in seen]) for window in windows])
