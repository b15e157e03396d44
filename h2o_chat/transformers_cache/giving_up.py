"""Evicts tokens that a caller names: what the model said, and thoughts.

The functions without an underscore are methods of `H2OCache`.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from h2o_chat.cache.arena import in_use_first
from h2o_chat.cache.state import STATES
from h2o_chat.policies.policies import Slots
from h2o_chat.transformers_cache.cache_like import CacheLike
from h2o_chat.transformers_cache.protection import clocks_of


def evict_generated(cache: CacheLike, row: int, openings: Sequence[int] = ()) -> bool:
    """Evicts generated tokens of a row, and prompt tokens at some positions; returns whether any went."""

    def said(slots: Slots) -> Tensor:
        opens = torch.tensor(openings, dtype=torch.long, device=slots.positions.device)
        return ~slots.prompt | torch.isin(slots.positions, opens)

    return _evict(cache, row, said)


@torch.no_grad()
def give_up(cache: CacheLike, row: int, positions: range, at_once: bool = True) -> bool:
    """Evicts a row's tokens at these positions; returns whether any went.

    Not `at_once`: it evicts none, and sets their score to 0, so that they go first.
    """

    def there(slots: Slots) -> Tensor:
        return (slots.positions >= positions.start) & (slots.positions < positions.stop)

    if at_once:
        return _evict(cache, row, there)
    for arena in cache.current_arenas():
        mine = arena.slots.cut(rows=slice(row, row + 1))
        mine.score.masked_fill_(there(mine).unsqueeze(-1), 0.0)
        arena.last_priority.pop(row, None)
    return False


@torch.no_grad()
def _evict(cache: CacheLike, row: int, which: Callable[[Slots], Tensor]) -> bool:
    """Evicts tokens of a row that are not protected; does nothing if the policy never evicts.

    KV heads then hold unequal numbers of tokens: `Clock.in_use` counts the fullest, and some empty slots
    of the others stay unused until the next eviction.

    Args:
        which: slots to a mask [L, 1, H, S].

    Returns:
        Whether any went.
    """
    if not cache.plan.shares.bounded:
        return False
    clock, most, some = clocks_of(cache, row)[row], 0, False
    for arena in cache.current_arenas():
        mine = arena.slots.cut(rows=slice(row, row + 1))
        goes = (mine.positions >= 0) & which(mine) & ~mine.protected  # [L, 1, H, S]
        for state in STATES:
            if state.dtype != "kv":  # keys and values of empty slots are masked, and overwritten later
                held = mine.states[state.name]
                held.masked_fill_(goes if held.ndim == 4 else goes.unsqueeze(-1), state.empty)
        arena.order[:, row] = in_use_first(mine.positions[:, 0])
        arena.last_priority.pop(row, None)
        most = max(most, int((mine.positions >= 0).sum(-1).max()))
        some = some or bool(goes.any())
    if some:
        clock.in_use = most
    return some
