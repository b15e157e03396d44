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
    below = plan.sinks
    if plan.shares is not None:
        below = max(below, min(tokens, plan.shares.most_protected))
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
    pins = {row: clock.pins | {p for p in wanted if p >= clock.seen} for row, clock in rows.items()}
    masks = [arena.slots.protected | mask for arena, mask in zip(arenas, chosen, strict=True)]
    for row, clock in rows.items():
        _refuse(plan, arenas, rows, needed(masks, row, clock, pins[row]))
    found = set().union(*pins.values()) & wanted
    for arena, mask, protected in zip(arenas, chosen, masks, strict=True):
        found |= set(arena.slots.positions[mask].tolist())
        distance.protect(arena, protected)
    for row, clock in rows.items():
        clock.pins = pins[row]
    return len(found)


def unpin(arenas: Sequence[Arena], rows: Rows, positions: Iterable[int] | None, keep: Iterable[int]) -> None:
    """Lets pinned tokens be evicted again, None: all but `keep`; sinks, system prompt stay protected."""
    wanted, kept = None if positions is None else set(positions), set(keep)
    for arena in arenas:
        slots = arena.slots
        stays = ~_held_at(arena, rows, wanted) if wanted is not None else _held_at(arena, rows, kept)
        for row, clock in rows.items():
            stays[:, row] |= slots.positions[:, row] < clock.protect_below
        others = torch.ones(arena.shape[1], dtype=torch.bool)
        others[list(rows)] = False
        stays |= others.to(arena.device)[:, None, None]
        distance.protect(arena, slots.protected & stays)
    for clock in rows.values():
        clock.pins = clock.pins & kept if wanted is None else clock.pins - wanted


def needed(masks: Sequence[Tensor], row: int, clock: Clock, pins: Iterable[int]) -> int:
    """Slots of a row's fullest KV head that are protected, or will be by what is yet to be fed.

    Args:
        masks: [L, R, H, S] bool of each arena, protected slots.
        pins: positions not fed yet.
    """
    held = max((int(mask[:, row].sum(-1).max()) for mask in masks), default=0)
    first = max(clock.protect_below - clock.seen, 0)
    return held + first + sum(position >= clock.protect_below for position in pins)


def most_protected(arenas: Sequence[Arena], rows: Rows) -> int:
    """What is `needed` in the fullest of these rows as they are."""
    masks = [arena.slots.protected for arena in arenas]
    return max((needed(masks, row, clock, clock.pins) for row, clock in rows.items()), default=0)


def budget_for(plan: Plan, protected: int) -> int | None:
    """The smallest budget, from this one on, of which so many slots may be protected; None: no budget."""
    shares, policy = plan.shares, plan.policy
    if shares is None or protected <= shares.most_protected:
        return None if shares is None else shares.budget
    if not policy.heavy:
        return None
    sizes = count(shares.budget)
    return next(size for size in sizes if divide(policy, size, *plan.asked).most_protected >= protected)


def _held_at(arena: Arena, rows: Rows, wanted: Iterable[int]) -> Tensor:
    """Which slots of these rows hold a token at one of these positions. [L, R, H, S] bool"""
    positions = arena.slots.positions
    among = torch.tensor(sorted(wanted), dtype=positions.dtype, device=positions.device)
    held = torch.isin(positions, among) & (positions >= 0)
    mine = torch.zeros(arena.shape[1], dtype=torch.bool)
    mine[list(rows)] = True
    return held & mine.to(arena.device)[:, None, None]


def _refuse(plan: Plan, arenas: Sequence[Arena], rows: Rows, protected: int) -> None:
    """
    Raises:
        BudgetError: so many slots may not be protected; says how many may, and what would fit.
    """
    shares = plan.shares
    if shares is None or protected <= shares.most_protected:
        return
    fits = budget_for(plan, protected)
    hint = (
        f"{plan.policy.name} keeps only the newest; with h2o something can be pinned."
        if fits is None
        else f"It would fit into a budget of {fits:,}; or unpin something."
    )
    raise BudgetError(
        f"That would protect {protected:,} slots; of a budget of {shares.budget:,} at most"
        f" {shares.most_protected:,} may be ({most_protected(arenas, rows):,} are).",
        hint,
    )
