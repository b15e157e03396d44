"""Copies of everything that a cache holds: of all its rows, of one of them, of several put together."""

from dataclasses import dataclass, replace

import torch

from h2o_chat.base.errors import UsageError
from h2o_chat.cache.arena import Arena, Part, in_use_first
from h2o_chat.cache.cache_like import CacheLike
from h2o_chat.cache.clock import Clock
from h2o_chat.cache.policies import Shares
from h2o_chat.cache.ready import join, place_layers


@dataclass(frozen=True)
class Snapshot:
    """Everything that a cache holds; `H2OCache.restore` puts it back."""

    policy: str
    shares: Shares
    bits: int | None  # of a number in the slots; None: as the model computes it
    parts: list[Part]  # none before the first token
    clocks: list[Clock]  # of each row, see `H2OCache.clocks`
    fresh: Clock  # of rows without a clock of their own
    fed: int  # columns, padding included

    def row(self, number: int) -> "Snapshot":
        """One row of it, as views; `fed` is then without padding."""
        cut = slice(number, number + 1)
        parts = [
            Part(
                part.layers,
                replace(part.shape, rows=1),
                {name: state[:, cut] for name, state in part.states.items()},
                part.lost[cut],
            )
            for part in self.parts
        ]
        clock = replace(self.clocks[number])
        return replace(self, parts=parts, clocks=[clock], fed=clock.seen)

    def copy(self) -> "Snapshot":
        """With tensors of its own."""
        parts = [
            replace(part, states={name: s.clone() for name, s in part.states.items()}, lost=part.lost.clone())
            for part in self.parts
        ]
        return replace(self, parts=parts)


def together(rows: list[Snapshot]) -> Snapshot:
    """Rows of one cache, or of caches alike, as one snapshot of all of them.

    Raises:
        UsageError: they have other numbers of slots, or their layers lie in other arenas.
    """
    first = rows[0]
    alike = {tuple((part.layers, part.states["positions"].shape[3]) for part in row.parts) for row in rows}
    if len(alike) > 1:
        raise UsageError(
            f"Rows of {len(alike)} kinds cannot be held together: {ascii(sorted(alike))[:200]}.",
            "Rows of the full policy fit together while they have as many slots.",
        )
    parts = [
        Part(
            part.layers,
            replace(part.shape, rows=len(rows)),
            {name: torch.cat([row.parts[n].states[name] for row in rows], 1) for name in part.states},
            torch.cat([row.parts[n].lost for row in rows]),
        )
        for n, part in enumerate(first.parts)
    ]
    clocks = [replace(row.clocks[0]) for row in rows]
    return replace(first, parts=parts, clocks=clocks, fed=max(row.fed for row in rows))


def take(cache: CacheLike) -> Snapshot:
    """The whole state, with the tensors themselves."""
    join(cache)
    return Snapshot(
        cache.plan.policy.name,
        cache.plan.shares,
        cache.plan.bits,
        [arena.part() for arena in cache.arenas],
        [replace(clock) for clock in cache.clocks],
        replace(cache.fresh),
        cache.fed,
    )


@torch.inference_mode(False)
def put(cache: CacheLike, snapshot: Snapshot) -> None:
    """Puts a whole state into a cache; the snapshot's tensors become the cache's."""
    _refuse_other(cache, snapshot)
    cache.reset()
    cache.clocks, cache.fresh = [replace(clock) for clock in snapshot.clocks], replace(snapshot.fresh)
    for part in snapshot.parts:
        arena = Arena(cache.plan, part.layers, cache.rope(part.layers[0]), part.shape, slots=0)
        arena.lost, arena.base = part.lost, arena.per_row([clock.base for clock in cache.clocks]).flatten()
        arena.hold(part.states)
        cache.arenas_in_step.append(arena)
    while len(cache.layers) < sum(len(part.layers) for part in snapshot.parts):
        cache.layers.append(cache.new_layer())
    place_layers(cache)
    for layer in cache.layers:
        layer.fed = snapshot.fed


@torch.inference_mode(False)
def put_row(cache: CacheLike, row: int, snapshot: Snapshot | None) -> None:
    """Copies one row's state into a row of a cache, or (None) empties it."""
    if snapshot is not None:
        _refuse_other(cache, snapshot)
        if len(snapshot.clocks) > 1 or (snapshot.parts and not cache.arenas):
            raise UsageError(
                f"A snapshot of {len(snapshot.clocks)} rows cannot be put into row {row}.",
                "Give one row, of Snapshot.row; before the first token use cache.restore().",
            )
    # Of a row that nothing was fed to there is no clock but the fresh one.
    clocks = [*snapshot.clocks, snapshot.fresh] if snapshot else [cache.plan.clock()]
    clock = cache.clocks[row] = replace(clocks[0])
    for arena in cache.arenas:
        arena.grow(clock.in_use)
        arena.empty_row(row, clock.base)
    for part in snapshot.parts if snapshot else []:
        for number, layer in enumerate(part.layers):
            into = cache.layers[layer]
            for name, saved in part.states.items():
                mine = into.arena.slots.states[name][into.at, row]  # [H, S, ...]
                slots = min(mine.shape[1], saved.shape[3])  # where slots are added, the others are empty
                mine[:, :slots] = saved[number, 0, :, :slots]
        into.arena.lost[row] += part.lost[0]
    for arena in cache.arenas:
        arena.order[:, row] = in_use_first(arena.slots.positions[:, row])
    for layer in cache.layers:  # a step of this row may have ended in the middle
        layer.fed = cache.fed


def _refuse_other(cache: CacheLike, snapshot: Snapshot) -> None:
    """
    Raises:
        UsageError: it is the snapshot of a cache with another policy, budget or precision.
    """
    was = snapshot.policy, snapshot.shares, snapshot.bits
    now = cache.plan.policy.name, cache.plan.shares, cache.plan.bits
    if was != now:
        raise UsageError(
            "This snapshot is of a cache with {} {} {} bits, this one has {} {} {}.".format(*was, *now),
            "Make the cache with the same policy, budget and K/V precision.",
        )
    mine = {replace(arena.of, rows=1) for arena in cache.arenas_in_step}
    theirs = {replace(part.shape, rows=1) for part in snapshot.parts}
    if mine and theirs and mine != theirs:
        raise UsageError(
            f"This snapshot is of layers {sorted(map(str, theirs))}, not {sorted(map(str, mine))}.",
            "Use it with the same model, in the same precision and on the same device.",
        )
