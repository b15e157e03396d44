"""Protects tokens from eviction, row by row: sinks, a system prompt, pins.

The functions without an underscore are methods of `H2OCache`, but `clocks_of` and `name_rows`.
Held tokens have a flag in their slots; tokens yet to be fed are listed in the clock of their row. `row` None
means every row.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count

import torch
from torch import Tensor

from h2o_chat.base.errors import BudgetError, UsageError
from h2o_chat.cache import turning
from h2o_chat.cache.arena import Arena
from h2o_chat.cache.clock import Clock
from h2o_chat.policies.shares import divide
from h2o_chat.transformers_cache.cache_like import CacheLike


def clocks_of(cache: CacheLike, row: int | None) -> dict[int, Clock]:
    """The clocks of one row or (None) of every row, by row.

    The first token fixes the number of rows. Before it, a row is created when it is named, and None also
    gives the clock of all rows not named yet, as row -1.

    Raises:
        UsageError: there is no such row.
    """
    if row is None:
        return dict(enumerate(cache.clocks)) | ({} if cache.current_arenas() else {-1: cache.fresh})
    if row < 0 or (cache.current_arenas() and row >= len(cache.clocks)):
        raise UsageError(f"There is no row {row}.", f"This H2OCache has {len(cache.clocks)} rows, from 0.")
    name_rows(cache, row + 1)
    return {row: cache.clocks[row]}


def name_rows(cache: CacheLike, rows: int) -> None:
    """Creates missing clocks of the first `rows` rows."""
    cache.clocks += [replace(cache.fresh) for _ in range(rows - len(cache.clocks))]


def protect(cache: CacheLike, tokens: int, row: int | None = None) -> int:
    """Protects the first tokens (a system prompt) before they are fed; returns how many are protected.

    At most (budget - recent) // 2 tokens are, sinks included.
    """
    shares = cache.plan.shares
    below = max(shares.sinks, min(tokens, shares.most_protected))
    for clock in clocks_of(cache, row).values():
        clock.protect_below = below
    return below


def pin(cache: CacheLike, positions: Iterable[int], row: int | None = None) -> int:
    """Protects the tokens at these true positions, where they are still held; also tokens not fed yet.

    A layer with a sliding window still evicts tokens that left the window.

    Returns:
        Number of these tokens that some KV head holds, or will hold when they are fed.

    Raises:
        BudgetError: together with sinks and system prompt there are more than `Shares.most_protected` in some
            KV head; nothing was changed.
    """
    clocks, wanted = clocks_of(cache, row), {position for position in positions if position >= 0}
    if not wanted:
        return 0
    chosen = [_held_at(arena, clocks, wanted) for arena in cache.current_arenas()]
    masks = [a.slots.protected | mask for a, mask in zip(cache.current_arenas(), chosen, strict=True)]
    ahead = {at: clock.pins | {p for p in wanted if p >= clock.seen} for at, clock in clocks.items()}
    most = max(_needed(masks, at, clock, ahead[at]) for at, clock in clocks.items())
    if most > cache.plan.shares.most_protected:
        raise _too_many(cache, clocks, most, now=protected_in(cache, row))
    found = set().union(*ahead.values()) & wanted
    for arena, mask, safe in zip(cache.current_arenas(), chosen, masks, strict=True):
        found |= set(arena.slots.positions[mask].tolist())
        turning.protect(arena, safe)
    for at, clock in clocks.items():
        clock.pins = ahead[at]
    return len(found)


def unpin(
    cache: CacheLike,
    positions: Iterable[int] | None = None,
    keep: Iterable[int] = (),
    row: int | None = None,
) -> None:
    """Removes the protection of pinned tokens; of all but `keep` if `positions` is None.

    Sinks and system prompt stay protected.
    """
    clocks, kept = clocks_of(cache, row), set(keep)
    wanted = None if positions is None else set(positions)
    for arena in cache.current_arenas():
        goes = _held_at(arena, clocks, wanted)
        if wanted is None:
            goes &= ~_held_at(arena, clocks, kept)
        for at, clock in clocks.items():
            goes[:, at] &= arena.slots.positions[:, at] >= clock.protect_below
        turning.protect(arena, arena.slots.protected & ~goes)
    for clock in clocks.values():
        clock.pins = clock.pins & kept if wanted is None else clock.pins - wanted


def protected_in(cache: CacheLike, row: int | None) -> int:
    """Protected slots of the fullest row and KV head, tokens yet to be fed included."""
    masks = [arena.slots.protected for arena in cache.current_arenas()]
    needed = [_needed(masks, at, clock, clock.pins) for at, clock in clocks_of(cache, row).items()]
    return max(needed, default=0)


def budget_for(cache: CacheLike, protected: int) -> int | None:
    """The smallest budget, not below the present one, in which `protected` slots fit; None: there is none."""
    shares, policy = cache.plan.shares, cache.plan.policy
    if protected <= shares.most_protected:
        return shares.budget if shares.bounded else None
    if not policy.heavy:
        return None
    sizes = count(shares.budget)
    return next(size for size in sizes if divide(policy, size, *cache.plan.asked).most_protected >= protected)


def _needed(masks: Sequence[Tensor], row: int, clock: Clock, pins: Iterable[int]) -> int:
    """Protected slots of one row's fullest KV head, by masks [L, R, H, S], plus tokens yet to be fed.

    Layers are counted one by one, since torch's sum needs 8 bytes a slot and memory may be short.
    """
    held = max((int(layer[row].sum(-1).max()) for mask in masks for layer in mask), default=0)
    first = max(clock.protect_below - clock.seen, 0)
    return held + first + sum(position >= clock.protect_below for position in pins)


def _held_at(arena: Arena, rows: Iterable[int], wanted: Iterable[int] | None) -> Tensor:
    """Slots of these rows that hold a token at one of these positions, or (None) any. [L, R, H, S] bool"""
    positions = arena.slots.positions
    mine = torch.zeros(arena.shape[1], dtype=torch.bool)
    mine[list(rows)] = True
    held = (positions >= 0) & mine.to(arena.device)[:, None, None]
    if wanted is None:
        return held
    return held & torch.isin(positions, torch.tensor(sorted(wanted), dtype=torch.int32, device=arena.device))


def _too_many(cache: CacheLike, clocks: Mapping[int, Clock], most: int, now: int) -> BudgetError:
    """The error for too many protected slots: how many are allowed, and which budget would do."""
    shares, policy, fits = cache.plan.shares, cache.plan.policy, budget_for(cache, most)
    if fits is None:
        but = f" but the first {shares.sinks} tokens" if shares.sinks else ""
        return BudgetError(
            f"The policy {policy.name} protects nothing{but}: it keeps only the newest.",
            "The policy h2o protects what is pinned.",
        )
    pinned = now > max(clock.protect_below for clock in clocks.values())
    hint = f"It would fit into a budget of {fits:,}{'; or unpin something' if pinned else ''}."
    if cache.trained and fits > cache.trained.window:
        hint = f"The model's window has {cache.trained.window:,} tokens: no budget within it would do."
    return BudgetError(
        f"That would protect {most:,} slots; of a budget of {shares.budget:,} at most"
        f" {shares.most_protected:,} may be protected{f', and {now:,} are' if now else ''}.",
        hint,
    )
