"""A token that is fed before the host has read which one it is: the device need not wait for the host.

It evicts nothing and turns no key: it fills one empty slot and adds to the scores, which can be undone.
"""

from dataclasses import replace

import torch

from h2o_chat.cache.arena import evict
from h2o_chat.cache.distance import turns_due
from h2o_chat.transformers_cache.cache import H2OCache


def can_go_ahead(cache: H2OCache) -> bool:
    """Whether the next token of a cache with one row can be undone after it was fed.

    Not where a prompt waits to be absorbed: its first token is read before that.
    """
    if any(arena.waiting for arena in cache.arenas_as_they_are):
        return False
    distance, clocks = cache.plan.distance, [replace(clock) for clock in cache.clocks]
    assert distance is not None
    return (
        len(clocks) == 1
        and clocks[0].in_use < cache.plan.budget
        and not any(turns_due(distance, clocks, [1]))
    )


class Ahead:
    """Undoes the next token; made before it is fed, of a cache for which `can_go_ahead`."""

    def __init__(self, cache: H2OCache) -> None:
        self._cache, self.clock = cache, replace(cache.clocks[0])
        arenas = cache.current_arenas()
        self._gaining = [arena.slots.states[name] for arena in arenas for name in ("score", "lately")]
        self._before = [state.clone() for state in self._gaining]
        self.logits = torch.empty(0)
        """[1, 1, V] after it, good until the next step."""

    @torch.no_grad()
    def undo(self) -> None:
        """The cache is what it was before the token, bit for bit."""
        for state, before in zip(self._gaining, self._before, strict=True):
            state.copy_(before)
        used = self.clock.in_use
        for arena in self._cache.current_arenas():
            evict(arena.slots, arena.order[..., used : used + 1].long())
        self._cache.clocks[0] = self.clock
        for layer in self._cache.layers:
            layer.fed -= 1
