"""How a state grows: what queries add and what is forgotten meanwhile, the same in decode and prompts.

Shapes: L layers, R rows, H KV heads, G query heads per KV head, N queries of a pass, T tokens that they see.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

PerRow = Sequence[int]  # one number of each row

LATELY_DECAY = 31 / 32  # factor of `lately` at every query: a mean over about the last 32 queries


class Received:
    """The score of H2O: the attention that a token has received, for each query head.

    Every query multiplies it by `decay_factor` and adds its attention. A gain of 0 changes nothing. Gains
    have the state's type, and a G only where it has one; a state of integers needs an `add` of its own.
    """

    def width(self, groups: int) -> int:
        """Numbers that a slot's score has."""
        return groups

    def gained(self, decay_factor: float, attention: Tensor, at: Tensor, later: Tensor) -> Tensor:
        """Returns what N queries of one pass add to the state of T tokens. [R, H, T, G]

        Args:
            attention: [R, H, G, N, T] probabilities; 0 for padding.
            at: [R, N] the queries' positions.
            later: [R, N] how many queries of the pass came after each.
        """
        return summed(attention, decay_factor ** later.to(attention.dtype))

    def gained_at_once(self, decay_factor: float, attention: Tensor, at: Tensor) -> Tensor:
        """`gained` from one query of each row: attention [L, R, H, G, T], at [R, 1]. [L, R, H, T, G]"""
        return attention.transpose(-1, -2)

    def add(self, decay_factor: float, state: Tensor, gain: Tensor, first: PerRow, count: PerRow) -> Tensor:
        """The state [L, R, H, T, G] after the queries of a pass, which bring `gain` (the same shape).

        Args:
            first, count: of each row, the position of its first query, and how many there are.
        """
        if len(set(count)) == 1:
            return torch.add(gain, state, alpha=decay_factor ** count[0])
        factors = [decay_factor**queries for queries in count]
        left = torch.tensor(factors, dtype=state.dtype, device=state.device)
        return gain + state * left.view(-1, *(1,) * (state.ndim - 2))

    def together(self, one: Tensor, other: Tensor) -> Tensor:
        """Gains of two blocks of queries, both forgotten up to the same moment."""
        return one + other


class Lately(Received):
    """Share of a KV head's attention: a mean over about the last 32 queries, and its query heads. No G."""

    def gained(self, decay_factor: float, attention: Tensor, at: Tensor, later: Tensor) -> Tensor:
        weight = (1 - LATELY_DECAY) / attention.shape[-3] * LATELY_DECAY ** later.to(attention.dtype)
        return summed(attention, weight).sum(-1)

    def gained_at_once(self, decay_factor: float, attention: Tensor, at: Tensor) -> Tensor:
        return attention.mean(-2) * (1 - LATELY_DECAY)

    def add(self, decay_factor: float, state: Tensor, gain: Tensor, first: PerRow, count: PerRow) -> Tensor:
        return super().add(LATELY_DECAY, state, gain, first, count)


LATELY = Lately()


def summed(attention: Tensor, weight: Tensor) -> Tensor:
    """Sums over queries [..., R, H, G, N, T] with weights [R, N]. [..., R, H, T, G]"""
    return (weight[:, None, None, None] @ attention).squeeze(-2).transpose(-1, -2)
