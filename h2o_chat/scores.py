"""How a policy's score grows: what the queries of one pass add, and what is forgotten meanwhile.

Shapes: R rows, H KV heads, N queries of a pass, T tokens they see, G query heads per KV head.
"""

import torch
from torch import Tensor

from h2o_chat.policies import Policy


def gained(policy: Policy, attention: Tensor, visible: Tensor, at: Tensor, later: Tensor) -> Tensor:
    """What N queries of one pass add to the score of T tokens. [R, H, N, T] -> [R, H, T]

    Args:
        attention: given by each query, summed over the G query heads of a KV head; 0 for padding.
        visible: [R, H, N] how many tokens each query saw, divided by G: 1 / visible is the fair share.
        at: [R, N] the queries' positions.
        later: [R, N] how many queries of the pass came after each.
    """
    if policy.uses:
        used = (attention * visible.unsqueeze(-1) > 1).to(attention.dtype)
        if policy.uses == "last":
            return (used * (at + 1).to(used.dtype)[:, None, :, None]).amax(2)
        return used.sum(2)
    weight = policy.forget ** later.to(attention.dtype)
    if policy.window:
        weight = (later < policy.window).to(attention.dtype)
    return (weight[:, None, None] @ attention).squeeze(2)


def together(policy: Policy, one: Tensor, other: Tensor) -> Tensor:
    """Gains of two blocks of queries, both forgotten up to the same moment. [R, H, T]"""
    return torch.maximum(one, other) if policy.uses == "last" else one + other


def with_gain(policy: Policy, score: Tensor, gain: Tensor, queries: Tensor) -> Tensor:
    """The score [R, H, T] after a pass of `queries` [R, 1, 1] queries that brought `gain`."""
    left = policy.forget ** queries.to(score.dtype)
    if policy.window:
        left = left.masked_fill(queries >= policy.window, 0)
    return together(policy, score * left, gain)
