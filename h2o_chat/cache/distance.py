"""Rotation indices of kept keys (RoPE, arXiv 2104.09864): the rules; `turning.py` turns the keys.

Attention sees only differences of rotation indices. Two rules keep indices and distances inside the window
that the model was trained for:

- A key's index is its position - `rope_origin`. When the next index would reach the window, the origin
  moves up to the next token and all keys are turned back with it (rebase).
- A key whose distance would pass `reach` - 1 is clamped: it is turned once to index 0, and every query is
  turned to index `reach` - 1 to meet it. Pinned keys and a system prompt are turned to `nearer` instead.

Keys are clamped in blocks of window / 32 tokens: distances are exact up to reach - window / 32 at least.
Quantised keys (`quantized.py`) are stored unturned and turned when they are read.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from h2o_chat.cache.clock import Clock
from h2o_chat.cache.rope import Positions
from h2o_chat.policies.policies import Policy
from h2o_chat.policies.shares import Shares


@dataclass(frozen=True)
class Distance:
    """The numbers of one model under one policy."""

    window: int  # longest context of the model's training, in tokens
    reach: int  # the largest distance of a key is reach - 1 tokens
    nearer: int  # tokens by which clamped keys of pins and system prompts stand nearer than others
    sinks: int  # first tokens, whose clamped distance is reach - 1 although they are protected
    learned: bool  # positions are added to the embedding (OPT, GPT-2): keys cannot be turned
    rebases: bool  # we choose the indices; False in plain transformers, which feeds true positions

    @property
    def edge(self) -> int:
        """Rotation index of queries for clamped keys: those at index 0 have the distance reach - 1."""
        return self.reach - 1

    @property
    def nearer_from(self) -> int:
        """Protected keys before this position (sinks, or the first token) have distance reach - 1."""
        return max(1, self.sinks)

    @property
    def block(self) -> int:
        """Tokens between two clampings."""
        return max(1, self.window // 32)

    def clamped_indices(self, protected: Tensor, positions: Tensor) -> Tensor:
        """Rotation index of a clamped key: 0; `nearer` if it is pinned or of a system prompt. [..., S]

        Sinks stay at 0, also the first token if a policy has no sinks: models need them far away.
        """
        return self.nearer * (protected & (positions >= self.nearer_from))

    def fed_indices(self, index: Tensor) -> Tensor:
        """Positions to feed for tokens at an index, always below the window.

        Learned positions run to the end of the window and then repeatedly through its second half. After each
        return, older tokens seem to come after newer ones until they are evicted.
        """
        if not self.learned:
            return index
        half = self.window // 2
        again = half + (index - self.window) % (self.window - half)
        return torch.where(index < self.window, index, again)


def distance_of(trained: Positions, policy: Policy, shares: Shares, rebases: bool) -> Distance:
    """The distances of a model: the reach is `Policy.reach` of the window, but at least the budget.

    Distances are therefore true until something is evicted. Only chat models get pinned keys nearer: a base
    model takes near text for text that it has just read (docs/POLICY.md).
    """
    window = trained.window
    reach = max(int(window * policy.reach), min(shares.budget, window))
    at = max(1, int(window * policy.protected_at))
    nearer = reach - min(reach, at) if trained.chats else 0
    return Distance(window, reach, nearer, shares.sinks, trained.learned, rebases)


def turns_due(distance: Distance, clocks: Sequence[Clock], count: Sequence[int]) -> tuple[bool, bool]:
    """Whether to (clamp, rebase) before `count` tokens per row are fed. Advances the clocks accordingly."""
    clamps = rebases = False
    for clock, more in zip(clocks, count, strict=True):
        # Keys far from the first new token, or outside the last one's window, are clamped.
        leaving = clock.seen + max(1 - distance.reach, more - distance.window)
        clamped_below = -(-leaving // distance.block) * distance.block
        if leaving > 0 and clamped_below > clock.clamped_below:
            clock.clamped_below, clamps = clamped_below, True
        if distance.rebases and clock.seen + more - clock.rope_origin > distance.window:
            clock.rope_origin, rebases = clock.seen, True
    return clamps, rebases


def indices(positions: Tensor, rope_origin: Tensor) -> Tensor:
    """Rotation index of new or unclamped keys at `positions` [..., R, H, N]; 0 for padding and empty slots.

    Args:
        rope_origin: [R] positions whose index is 0.
    """
    return (positions - rope_origin[:, None, None]).masked_fill(positions < 0, 0)
