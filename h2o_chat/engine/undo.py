"""After a step that raised: the cache is as it was before, or it is known which rows are not."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from h2o_chat.cache.arena import give_up
from h2o_chat.cache.clock import Clock
from h2o_chat.cache.step import Step
from h2o_chat.transformers_cache.cache_like import CacheLike


@torch.no_grad()
def undo(cache: CacheLike, step: Step, before: Sequence[Clock], fed: int) -> bool:
    """Takes back a step that has raised; rows that got no token are as they were in any case.

    Args:
        before: the clocks before it was prepared, copies.
        fed: columns fed before it.

    Returns:
        Whether the rows that got tokens are as they were, too: the step may be fed again. Else they hold part
        of it, and have to be put or emptied.
    """
    if not fed:  # nothing was held: what the first step has made of the cache is given back
        fresh = replace(cache.fresh)
        cache.reset()
        cache.clocks, cache.fresh = list(before), fresh
        return True
    whole = not step.lasting
    for arena in cache.arenas_in_step:
        if whole and arena.slot is not None:
            give_up(arena.slots, arena.slot)  # as it was before `Arena.place`: empty
        arena.slot = None
        arena.waiting.clear()
    if whole:
        turned = cache.step is step  # it was made ready to its end: keys that were turned for it stay so
        cache.clocks[:] = [
            replace(clock, base=now.base, near_from=now.near_from) if turned else clock
            for clock, now in zip(before, cache.clocks, strict=True)
        ]
    for layer in cache.layers:
        layer.fed = fed
    step.begun = True  # nobody waits for it any more
    return whole
