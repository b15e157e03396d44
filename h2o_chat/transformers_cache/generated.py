"""Evicts generated tokens at once and keeps prompt tokens. A method of `H2OCache`."""

import torch

from h2o_chat.cache.arena import in_use_first
from h2o_chat.cache.state import STATES
from h2o_chat.transformers_cache.cache_like import CacheLike
from h2o_chat.transformers_cache.protection import clocks_of


@torch.no_grad()
def give_up_generated(cache: CacheLike, row: int) -> bool:
    """Evicts generated tokens of a row that are not protected; does nothing if the policy never evicts.

    KV heads then hold unequal numbers of tokens: `Clock.in_use` counts the fullest, and some empty slots of
    the others stay unused until the next eviction.

    Returns:
        Whether anything was evicted.
    """
    if not cache.plan.shares.bounded:
        return False
    clock, most, some = clocks_of(cache, row)[row], 0, False
    for arena in cache.arenas:
        mine = arena.slots.cut(rows=slice(row, row + 1))
        goes = (mine.positions >= 0) & ~mine.prompt & ~mine.protected  # [L, 1, H, S]
        for state in STATES:
            if state.dtype != "kv":  # keys and values of empty slots are masked, and overwritten later
                held = mine.states[state.name]
                held.masked_fill_(goes if held.ndim == 4 else goes.unsqueeze(-1), state.empty)
        arena.order[:, row] = in_use_first(mine.positions[:, 0])
        arena.ranked.pop(row, None)
        most = max(most, int((mine.positions >= 0).sum(-1).max()))
        some = some or bool(goes.any())
    if some:
        clock.in_use = most
    return some
