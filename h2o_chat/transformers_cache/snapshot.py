"""Snapshots of a cache, or of one of its rows.

The functions without an underscore are methods of `H2OCache`.
"""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from h2o_chat.base.errors import UsageError
from h2o_chat.cache.arena import Arena, SavedArena, in_use_first
from h2o_chat.cache.clock import Clock
from h2o_chat.policies.shares import Shares
from h2o_chat.transformers_cache.cache_like import CacheLike
from h2o_chat.transformers_cache.protection import clocks_of
from h2o_chat.transformers_cache.ready import changed, join, place_layers


@dataclass(frozen=True)
class Snapshot:
    """The whole state of a cache, for `H2OCache.restore`."""

    policy: str
    shares: Shares
    bits: int | None  # bits of a number in the slots; None: the model's precision
    parts: list[SavedArena]  # none before the first token
    clocks: list[Clock]  # per row, see `H2OCache.clocks`
    fresh: Clock  # of rows without their own clock
    fed: int  # columns, padding included
    states: list[dict[str, Tensor]] = field(default_factory=list)
    """One dictionary for each of `H2OCache.state_layers`, of tensors [R, ...]."""

    def row(self, number: int) -> "Snapshot":
        """One row, as views; its `fed` counts no padding."""
        parts = [part.changed(1, lambda state: state[:, number : number + 1]) for part in self.parts]
        clock = replace(self.clocks[number])
        states = changed(self.states, lambda state: state[number : number + 1])
        return replace(self, parts=parts, clocks=[clock], fed=clock.seen, states=states)

    def copy(self) -> "Snapshot":
        parts = [part.changed(part.shape.rows, torch.clone) for part in self.parts]
        return replace(self, parts=parts, states=changed(self.states, torch.clone))


def snapshot(cache: CacheLike, *, copy: bool = True) -> Snapshot:
    """The whole state; with `copy=False` the tensors themselves, valid until the next token is fed."""
    join(cache)
    taken = Snapshot(
        cache.plan.policy.name,
        cache.plan.shares,
        cache.plan.bits,
        [SavedArena(a.layers, a.layer_shape, a.slots.states, a.lost) for a in cache.current_arenas()],
        [replace(clock) for clock in cache.clocks],
        replace(cache.fresh),
        cache.fed,
        [layer.held for layer in cache.state_layers],
    )
    return taken.copy() if copy else taken


@torch.inference_mode(False)
def restore(cache: CacheLike, snapshot: Snapshot, *, hand_over: bool = False) -> None:
    """Restores a state.

    Args:
        hand_over: use the snapshot's tensors, which needs no memory; only once, and not with `Snapshot.row`.

    Raises:
        UsageError: the snapshot is of a cache with another policy, budget or precision.
    """
    _refuse_other(cache, snapshot)
    snapshot = snapshot if hand_over else snapshot.copy()
    cache.reset()
    cache.clocks, cache.fresh = [replace(clock) for clock in snapshot.clocks], replace(snapshot.fresh)
    for part in snapshot.parts:
        arena = Arena(cache.plan, part.layers, cache.rope(part.layers[0]), part.shape, part.states)
        arena.lost = part.lost
        arena.rope_origin = arena.per_row([clock.rope_origin for clock in cache.clocks]).flatten()
        cache.arenas_as_they_are.append(arena)
    while len(cache.attention_layers) < sum(len(part.layers) for part in snapshot.parts):
        cache.layers.append(cache.new_layer())
    place_layers(cache)
    for layer in cache.attention_layers:
        layer.fed = snapshot.fed
    for state_layer, held in zip(cache.state_layers, snapshot.states, strict=True):
        state_layer.put(held)


def take_row(cache: CacheLike, row: int, *, copy: bool = True) -> Snapshot:
    """The whole state of one row, see `snapshot`; raises UsageError if there is no such row."""
    clocks_of(cache, row)  # raises if there is no such row
    taken = snapshot(cache, copy=False).row(row)
    return taken.copy() if copy else taken


@torch.inference_mode(False)
def put_row(cache: CacheLike, row: int, snapshot: Snapshot | None) -> None:
    """Restores one row from a snapshot, or (None) empties it; other rows do not change.

    Raises:
        UsageError: there is no such row; or the snapshot is of a cache with another policy, budget or
            precision, has several rows, or has tokens while this cache was fed none.
    """
    clocks_of(cache, row)  # raises if there is no such row
    if snapshot is not None:
        _refuse_other(cache, snapshot)
        if len(snapshot.clocks) > 1 or (snapshot.parts and not cache.current_arenas()):
            raise UsageError(
                f"A snapshot of {len(snapshot.clocks)} rows cannot be put into row {row}.",
                "Give one row, of Snapshot.row; before the first token use cache.restore().",
            )
    # An empty row has only the fresh clock.
    clocks = [*snapshot.clocks, snapshot.fresh] if snapshot else [cache.plan.clock()]
    join(cache)  # so that arenas have the same layers as in the snapshot
    clock = cache.clocks[row] = replace(clocks[0])
    for arena in cache.current_arenas():
        arena.grow(clock.in_use)
        arena.empty_row(row, clock.rope_origin)
    by_layers = {arena.layers: arena for arena in cache.current_arenas()}
    for part in snapshot.parts if snapshot else []:
        arena = by_layers[tuple(part.layers)]
        for name, saved in part.states.items():
            mine = arena.slots.states[name][:, row]  # [L, H, S, ...]
            slots = min(mine.shape[2], saved.shape[3])  # further slots are empty
            mine[:, :, :slots] = saved[:, 0, :, :slots]
        arena.lost[row] += part.lost[0]
    for arena in cache.current_arenas():
        arena.order[:, row] = in_use_first(arena.slots.positions[:, row])
    for layer in cache.attention_layers:  # a step of this row may have ended in the middle
        layer.fed = cache.fed
    for number, state_layer in enumerate(cache.state_layers):
        given = snapshot.states[number] if snapshot else {}
        for name, held in state_layer.held.items():
            held[row] = given[name][0] if name in given else 0


@torch.inference_mode(False)
def select_rows(cache: CacheLike, rows: Tensor) -> None:
    """Row i becomes a copy of row rows[i]; `rows` [new rows]."""
    taken, chosen = snapshot(cache, copy=False), rows.tolist()
    parts = [
        part.changed(len(chosen), lambda state: state.index_select(1, rows.to(state.device)))
        for part in taken.parts
    ]
    clocks = [taken.clocks[row] for row in chosen] if taken.clocks else []
    states = changed(taken.states, lambda state: state.index_select(0, rows.to(state.device)))
    restore(cache, replace(taken, parts=parts, clocks=clocks, states=states), hand_over=True)


def _refuse_other(cache: CacheLike, snapshot: Snapshot) -> None:
    was = snapshot.policy, snapshot.shares, snapshot.bits
    now = cache.plan.policy.name, cache.plan.shares, cache.plan.bits
    if was != now:
        raise UsageError(
            "This snapshot is of a cache with {} {} {} bits, this one has {} {} {}.".format(*was, *now),
            "Make the cache with the same policy, budget and K/V precision.",
        )
    mine = {replace(arena.layer_shape, rows=1) for arena in cache.arenas_as_they_are}
    theirs = {replace(part.shape, rows=1) for part in snapshot.parts}
    if mine and theirs and mine != theirs:
        raise UsageError(
            f"This snapshot is of layers {sorted(map(str, theirs))}, not {sorted(map(str, mine))}.",
            "Use it with the same model, in the same precision and on the same device.",
        )
