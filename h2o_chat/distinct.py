"""How a key stands among the others held, by content alone: pure functions on keys of length 1, before RoPE.

Shapes: R rows, H KV heads, S slots, D head size.
"""

import torch
from torch import Tensor

BLOCK = 256
"""Keys compared with all others at a time, so that no S x S matrix is held, however long a prompt."""


def cosines(unit: Tensor, mean: Tensor) -> Tensor:
    """Of keys of length 1 [R, H, S, D] to the direction of a mean [R, H, D]. [R, H, S]"""
    return (unit @ torch.nn.functional.normalize(mean, dim=-1).unsqueeze(-1)).squeeze(-1)


def mean_key(unit: Tensor, positions: Tensor) -> Tensor:
    """Of the slots in use, keys of length 1 [R, H, S, D] at `positions` [R, H, S]. [R, H, D]"""
    held = (positions >= 0).unsqueeze(-1)
    return (unit * held).sum(2) / held.sum(2).clamp_min(1)


def nearest(unit: Tensor, positions: Tensor) -> Tensor:
    """Of keys of length 1 [R, H, S, D], the largest cosine to another one; 0 where all others point away.

    Redundancy as in R-KV (arXiv 2505.24133), which compares the newest keys after RoPE.

    Args:
        positions: [R, H, S], -1 = empty.

    Returns:
        [R, H, S]
    """
    found = []
    there = positions.unsqueeze(-2)  # [R, H, 1, S]
    for some, here in zip(torch.split(unit, BLOCK, 2), torch.split(positions, BLOCK, 2), strict=True):
        near = some @ unit.transpose(-1, -2)  # [R, H, B, S]
        found.append(near.masked_fill_((there < 0) | (there == here.unsqueeze(-1)), 0).amax(-1))
    return torch.cat(found, -1)
