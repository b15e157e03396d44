"""What the model said itself is given up at once; what it was told stays. A function of `H2OCache`."""

import torch

from h2o_chat.cache.arena import in_use_first
from h2o_chat.cache.state import STATES
from h2o_chat.transformers_cache.cache_like import CacheLike
from h2o_chat.transformers_cache.pins import clocks_of


@torch.no_grad()
def give_up_generated(cache: CacheLike, row: int) -> bool:
    """Empties the slots of generated tokens that are not protected; where nothing may be given up none goes.

    KV heads then hold unequal numbers of tokens: `Clock.in_use` counts the fullest, and the others write on
    behind as many, so that some of their empty slots wait until slots are given up again.

    Returns:
        Whether anything was given up.
    """
    if not cache.plan.shares.bounded:
        return False
    clock, most, some = clocks_of(cache, row)[row], 0, False
    for arena in cache.arenas:
        mine = arena.slots.cut(rows=slice(row, row + 1))
        goes = (mine.positions >= 0) & ~mine.prompt & ~mine.protected  # [L, 1, H, S]
        for state in STATES:
            if state.dtype != "kv":  # what lies there is masked, and overwritten by the next token
                held = mine.states[state.name]
                held.masked_fill_(goes if held.ndim == 4 else goes.unsqueeze(-1), state.empty)
        arena.order[:, row] = in_use_first(mine.positions[:, 0])
        arena.ranked.pop(row, None)
        most = max(most, int((mine.positions >= 0).sum(-1).max()))
        some = some or bool(goes.any())
    if some:
        clock.in_use = most
    return some
