"""How a policy's score grows: what queries add, and what is forgotten meanwhile, in decode and prompts.

Shapes: L layers, R rows, H KV heads, G query heads per KV head, N queries of a pass, T tokens that they see.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from h2o_chat.cache.policies import Policy

REMEMBER = 31 / 32
"""`recent` attention is a mean over about the last 32 queries."""


def columns(policy: Policy, groups: int) -> int:
    """Numbers that a slot's score has: one per query head, or one where uses are counted."""
    return 1 if policy.uses else groups


def left(rate: float, queries: Sequence[int], like: Tensor) -> Tensor | float:
    """What is left of a number after so many queries of each row. A float, or [R, 1, 1, 1]

    Args:
        queries: of each row.
    """
    if len(set(queries)) == 1:
        return float(rate ** queries[0])
    return torch.tensor([rate**count for count in queries], dtype=like.dtype, device=like.device)[
        :, None, None, None
    ]


def add(policy: Policy, score: Tensor, gain: Tensor, queries: Sequence[int]) -> Tensor:
    """The score [..., R, H, T, G] after `queries` queries of each row that brought `gain`, as large."""
    kept = left(policy.forget, queries, score)
    if policy.window:
        short = [count < policy.window for count in queries]
        kept = kept * torch.tensor(short, dtype=score.dtype, device=score.device)[:, None, None, None]
    if policy.uses == "last":
        return torch.maximum(score * kept, gain)
    return torch.add(gain, score * kept) if isinstance(kept, Tensor) else torch.add(gain, score, alpha=kept)


def gained(policy: Policy, attention: Tensor, visible: Tensor | None, at: Tensor, later: Tensor) -> Tensor:
    """What N queries of one pass add to the score of T tokens. [..., R, H, T, G]

    Args:
        attention: [..., R, H, G, N, T] probabilities; 0 for padding.
        visible: [..., R, H, N] tokens that each query saw, for a policy that counts uses.
        at: [R, N] the queries' positions.
        later: [R, N] how many queries of the pass came after each.
    """
    if policy.uses:
        assert visible is not None
        groups = attention.shape[-3]
        used = (attention.sum(-3) * visible.unsqueeze(-1) > groups).to(attention.dtype)  # [..., R, H, N, T]
        if policy.uses == "last":
            return (used * (at + 1).to(used.dtype)[:, None, :, None]).amax(-2).unsqueeze(-1)
        return used.sum(-2).unsqueeze(-1)
    if policy.window:
        weight = (later < policy.window).to(attention.dtype)
    else:
        weight = policy.forget ** later.to(attention.dtype)
    return weighted(attention, weight).transpose(-1, -2)


def together(policy: Policy, one: Tensor, other: Tensor) -> Tensor:
    """Gains of two blocks of queries, both forgotten up to the same moment."""
    return torch.maximum(one, other) if policy.uses == "last" else one + other


def weighted(attention: Tensor, weight: Tensor) -> Tensor:
    """Sums over queries [..., R, H, G, N, T] with weights [R, N]. [..., R, H, G, T]"""
    return (weight[:, None, None, None] @ attention).squeeze(-2)
