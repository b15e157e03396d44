"""What the tokens before an answer give to it: the attention that they get from its first token on.

Scores already add up attention, apart for each query head, and forget it at a fixed rate. So what came in a
stretch of tokens is the score at its end less what is left of the score at its beginning: two looks, and
nothing is added to a step. What a head's attention counts is in `source.py`.

Shapes: L layers, H KV heads, G query heads per KV head, S slots, P positions, K sums.
"""

import torch
from torch import Tensor

from h2o_chat.cache.arena import Arena
from h2o_chat.policies.scores import Received
from h2o_chat.transformers_cache.cache import H2OCache
from h2o_chat.transformers_cache.ready import join

STRETCH = 32
"""Tokens between two looks: of a score little is forgotten in so few."""


class AnswerAttention:
    """Adds up what tokens that are held when an answer begins get while it grows. It changes nothing."""

    def __init__(self, cache: H2OCache, row: int = 0) -> None:
        self._cache, self._row = cache, row
        self._parts: list[_Part] = []
        self.queries = 0
        """Tokens of the answer that attended."""
        self._since = 0

    def forget(self) -> None:
        """Another answer is to come."""
        self.queries = self._since = 0
        self._parts = []

    @torch.no_grad()
    def begin(self) -> None:
        """The prompt was read, and no token of the answer was fed; one may be chosen."""
        self.forget()
        join(self._cache)  # as the next step would: after the first prompt each layer has an arena of its own
        scores = type(self._cache.plan.policy.scores)
        if scores.gained_at_once is Received.gained_at_once:  # else scores are no attention: of `lru`, say
            self._parts = [_Part(arena, self._row) for arena in self._cache.arenas]

    def fed(self) -> None:
        """One more token of the answer was fed."""
        if not self._parts:
            return
        self.queries += 1
        self._since += 1
        if self._since == STRETCH:
            self._look()

    @torch.no_grad()
    def found(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Positions [P], in order, and what the token at each got per token of the answer. [P, K] float64

        Args:
            weights: [K, L, H * G] of each query head, for each of K sums.
        """
        self._look()
        places = [part.at.flatten() for part in self._parts]
        sums = [part.weighed(weights) for part in self._parts]
        at = torch.cat(places or [torch.empty(0, dtype=torch.int32)]).cpu()
        got = torch.cat(sums or [torch.empty(0, len(weights))]).cpu().double()[at >= 0]
        positions, which = torch.unique(at[at >= 0], return_inverse=True)
        total = torch.zeros(len(positions), len(weights), dtype=torch.float64)
        return positions, total.index_add_(0, which, got) / max(1, self.queries)

    @torch.no_grad()
    def _look(self) -> None:
        left = self._cache.plan.policy.forget**self._since
        for part in self._parts if self._since else ():
            part.add(left)
        self._since = 0


class _Part:
    """Of one arena. A slot whose token went during the answer keeps what that had got."""

    def __init__(self, arena: Arena, row: int) -> None:
        self._arena, self._row = arena, row
        self.at = arena.slots.positions[:, row].clone()  # [L, H, S]
        self._before = arena.slots.score[:, row].clone()  # [L, H, S, G]
        self._sums = torch.zeros_like(self._before)

    def add(self, left: float) -> None:
        """What came since the last look, of which `left` is what is left of a score over that time."""
        slots = self.at.shape[2]  # without a budget there may be more by now
        score = self._arena.slots.score[:, self._row, :, :slots]
        same = self._arena.slots.positions[:, self._row, :, :slots] == self.at
        self._sums.addcmul_(torch.sub(score, self._before, alpha=left), same.unsqueeze(-1))
        self._before.copy_(score)

    def weighed(self, weights: Tensor) -> Tensor:
        """All sums, the heads by their weights [K, L, H * G]. [L * H * S, K]"""
        layers, heads, _, groups = self._sums.shape
        mine = weights[:, list(self._arena.layers)].to(self._sums).view(-1, layers, heads, groups)
        return (self._sums @ mine.permute(1, 2, 3, 0)).flatten(0, 2)
