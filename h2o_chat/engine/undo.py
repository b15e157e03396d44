"""Undo of a step that raised: the cache is as before, or the rows that are not are known."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from h2o_chat.cache.arena import evict
from h2o_chat.cache.clock import Clock
from h2o_chat.cache.forward_call import Step
from h2o_chat.transformers_cache.cache_like import CacheLike


@torch.no_grad()
def undo(cache: CacheLike, step: Step, before: Sequence[Clock], fed: int, rows: set[int]) -> set[int]:
    """Takes back a step that has raised.

    Args:
        before: copies of the clocks before it was prepared.
        fed: columns fed before it.
        rows: that it fed.

    Returns:
        Rows that hold part of a step, and have to be put or emptied. The others are as they were.
    """
    if not fed:  # nothing was held: what the first step has made of the cache is given back
        fresh = replace(cache.fresh)
        cache.reset()
        cache.clocks, cache.fresh = list(before), fresh
        return set()
    torn = drop_half_absorbed(cache)
    prepared = cache.step is step  # otherwise the pending prompt is of the step before
    for arena in cache.arenas_as_they_are:
        if not step.changed_slots and arena.slot is not None:
            evict(arena.slots, arena.slot)  # empty, like before `Arena.place`
        arena.slot = None
        if prepared:
            arena.waiting.clear()
    if step.changed_slots:
        torn |= rows
    else:  # where it was prepared, keys that were turned for it stay so
        cache.clocks[:] = [
            replace(old, rope_origin=now.rope_origin, clamped_below=now.clamped_below) if prepared else old
            for old, now in zip(before, cache.clocks, strict=True)
        ]
    for arena in cache.arenas_as_they_are:  # it may have raised when keys of some arenas were turned
        origins = zip(arena.rope_origin.tolist(), cache.clocks, strict=True)
        torn |= {row for row, (origin, clock) in enumerate(origins) if origin != clock.rope_origin}
    for layer in cache.attention_layers:
        layer.fed = fed
    if prepared:
        for state_layer, held in zip(cache.state_layers, cache.states_before, strict=True):
            state_layer.put(held)
    step.begun = True  # nobody waits for it any more
    return torn


def drop_half_absorbed(cache: CacheLike) -> set[int]:
    """Drops a half-absorbed prompt; returns the rows that hold part of it."""
    if cache.step is None or not cache.step.half_absorbed:
        return set()
    cache.step.half_absorbed = False
    for arena in cache.arenas_as_they_are:
        arena.waiting.clear()
    return set(range(len(cache.clocks)))
