"""How a score grows: what queries add and what is forgotten meanwhile, the same in decode and prompts.

Shapes: L layers, R rows, H KV heads, G query heads per KV head, N queries of a pass, T tokens that they see.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

REMEMBER = 31 / 32
"""Attention received `lately` is a mean over about the last 32 queries."""


def added(rate: float, score: Tensor, gain: Tensor, queries: Sequence[int]) -> Tensor:
    """A score [..., R, H, T, G] after so many queries of each row: each leaves `rate` of it; their gain."""
    if len(set(queries)) == 1:
        return torch.add(gain, score, alpha=rate ** queries[0])
    left = torch.tensor([rate**count for count in queries], dtype=score.dtype, device=score.device)
    return gain + score * left[:, None, None, None]


class Received:
    """The score of all policies but some of the lab: attention received, apart for each query head.

    Every query leaves `forget` of it and adds what it gives.
    """

    def columns(self, groups: int) -> int:
        """Numbers that a slot's score has."""
        return groups

    def gained(self, forget: float, attention: Tensor, at: Tensor, later: Tensor) -> Tensor:
        """What N queries of one pass add to the score of T tokens. [..., R, H, T, G]

        Args:
            attention: [..., R, H, G, N, T] probabilities; 0 for padding.
            at: [R, N] the queries' positions.
            later: [R, N] how many queries of the pass came after each.
        """
        return self.summed(attention, forget ** later.to(attention.dtype))

    def gained_at_once(self, forget: float, attention: Tensor, at: Tensor) -> Tensor:
        """`gained` from one query of each row: attention [..., R, H, G, T], at [R, 1]. [..., R, H, T, G]"""
        return attention.transpose(-1, -2)

    def add(self, forget: float, score: Tensor, gain: Tensor, queries: Sequence[int]) -> Tensor:
        """The score [..., R, H, T, G] after `queries` queries of each row that brought `gain`, as large."""
        return added(forget, score, gain, queries)

    def together(self, one: Tensor, other: Tensor) -> Tensor:
        """Gains of two blocks of queries, both forgotten up to the same moment."""
        return one + other

    @staticmethod
    def summed(attention: Tensor, weight: Tensor) -> Tensor:
        """Sums over queries [..., R, H, G, N, T] with weights [R, N]. [..., R, H, T, G]"""
        return weighted(attention, weight).transpose(-1, -2)


def weighted(attention: Tensor, weight: Tensor) -> Tensor:
    """Sums over queries [..., R, H, G, N, T] with weights [R, N]. [..., R, H, G, T]"""
    return (weight[:, None, None, None] @ attention).squeeze(-2)
