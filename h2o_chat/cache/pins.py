"""What is never evicted, of each row apart: sinks, a system prompt, pins.

Of tokens that are held a flag of their slots says so; of tokens yet to be fed the clock of their row does.
Each function takes the arenas, none before the first token, and the clocks of the rows it is about.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

import torch
from torch import Tensor

from h2o_chat.base.errors import BudgetError
from h2o_chat.cache import distance
from h2o_chat.cache.arena import Arena
from h2o_chat.cache.clock import Clock
from h2o_chat.cache.plan import Plan
from h2o_chat.cache.policies import divide

Rows = Mapping[int, Clock]


def protect(plan: Plan, rows: Rows, tokens: int) -> int:
    """Protects the first tokens of these rows, as many as may be; how many are, sinks included."""
    below = max(plan.shares.sinks, min(tokens, plan.shares.most_protected))
    for clock in rows.values():
        clock.protect_below = below
    return below


def pin(plan: Plan, arenas: Sequence[Arena], rows: Rows, positions: Iterable[int]) -> int:
    """Protects the tokens at these positions: of how many something is held, or will be when they are fed.

    Raises:
        BudgetError: that is more than may be protected; nothing has changed.
    """
    wanted = {position for position in positions if position >= 0}
    chosen = [_held_at(arena, rows, wanted) for arena in arenas]
    masks = [arena.slots.protected | mask for arena, mask in zip(arenas, chosen, strict=True)]
    pins = {row: clock.pins | {p for p in wanted if p >= clock.seen} for row, clock in rows.items()}
    most = max(_needed(masks, row, clock, pins[row]) for row, clock in rows.items())
    if most > plan.shares.most_protected:
        raise _too_many(plan, most, now=protected(arenas, rows))
    found = set().union(*pins.values()) & wanted
    for arena, mask, safe in zip(arenas, chosen, masks, strict=True):
        found |= set(arena.slots.positions[mask].tolist())
        distance.protect(arena, safe)
    for row, clock in rows.items():
        clock.pins = pins[row]
    return len(found)


def unpin(arenas: Sequence[Arena], rows: Rows, positions: Iterable[int] | None, keep: Iterable[int]) -> None:
    """Lets pinned tokens be evicted again, None: all but `keep`; sinks, system prompt stay protected."""
    wanted, kept = None if positions is None else set(positions), set(keep)
    for arena in arenas:
        goes = _held_at(arena, rows, wanted)
        if wanted is None:
            goes &= ~_held_at(arena, rows, kept)
        for row, clock in rows.items():
            goes[:, row] &= arena.slots.positions[:, row] >= clock.protect_below
        distance.protect(arena, arena.slots.protected & ~goes)
    for clock in rows.values():
        clock.pins = clock.pins & kept if wanted is None else clock.pins - wanted


def protected(arenas: Sequence[Arena], rows: Rows) -> int:
    """Slots of the fullest row and KV head that are protected, or will be by what is yet to be fed."""
    masks = [arena.slots.protected for arena in arenas]
    return max((_needed(masks, row, clock, clock.pins) for row, clock in rows.items()), default=0)


def budget_for(plan: Plan, protected: int) -> int | None:
    """The smallest budget, from this one on, of which so many slots may be protected; None: no budget."""
    shares, policy = plan.shares, plan.policy
    if protected <= shares.most_protected:
        return shares.budget if shares.bounded else None
    if not policy.heavy:
        return None
    sizes = count(shares.budget)
    return next(size for size in sizes if divide(policy, size, *plan.asked).most_protected >= protected)


def _needed(masks: Sequence[Tensor], row: int, clock: Clock, pins: Iterable[int]) -> int:
    """Protected slots of one row's fullest KV head, of masks [L, R, H, S], and what is yet to be fed."""
    held = max((int(mask[:, row].sum(-1).max()) for mask in masks), default=0)
    first = max(clock.protect_below - clock.seen, 0)
    return held + first + sum(position >= clock.protect_below for position in pins)


def _held_at(arena: Arena, rows: Rows, wanted: Iterable[int] | None) -> Tensor:
    """Which slots of these rows hold a token at one of these positions, or (None) any. [L, R, H, S] bool"""
    positions = arena.slots.positions
    mine = torch.zeros(arena.shape[1], dtype=torch.bool)
    mine[list(rows)] = True
    held = (positions >= 0) & mine.to(arena.device)[:, None, None]
    if wanted is None:
        return held
    return held & torch.isin(positions, torch.tensor(sorted(wanted), dtype=torch.int32, device=arena.device))


def _too_many(plan: Plan, most: int, now: int) -> BudgetError:
    """So many slots may not be protected: how many may, and what would fit."""
    shares, fits = plan.shares, budget_for(plan, most)
    hint = (
        f"{plan.policy.name} keeps only the newest; with h2o something can be pinned."
        if fits is None
        else f"It would fit into a budget of {fits:,}; or unpin something."
    )
    return BudgetError(
        f"That would protect {most:,} slots; of a budget of {shares.budget:,} at most"
        f" {shares.most_protected:,} may be ({now:,} are).",
        hint,
    )
