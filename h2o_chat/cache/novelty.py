"""How a key stands among the others kept, by content alone: pure functions on keys of length 1, before RoPE.

Shapes: any leading dimensions (layers L, rows R, KV heads H), S slots, D head size.
"""

import torch
from torch import Tensor

BLOCK = 256
"""Keys compared with all others at a time, so that no S x S matrix is held, however long a prompt."""


def distinctness(unit: Tensor, held: Tensor) -> Tensor:
    """Minus the cosine of each key to the mean of the kept keys (KeyDiff, arXiv 2504.15364). [..., S]

    Args:
        unit: [..., S, D] keys of length 1, before RoPE.
        held: [..., S] bool, slots in use.
    """
    weight = held.to(unit.dtype)
    mean = torch.nn.functional.normalize((weight.unsqueeze(-2) @ unit).squeeze(-2), dim=-1)  # [..., D]
    return -(unit @ mean.unsqueeze(-1)).squeeze(-1)


def novelty(unit: Tensor, positions: Tensor) -> Tensor:
    """Minus the cosine of each key to the nearest other one kept; 0 where all others point away. [..., S]

    Redundancy as in R-KV (arXiv 2505.24133), which compares the newest keys after RoPE.

    Args:
        unit: [..., S, D] keys of length 1, before RoPE.
        positions: [..., S], -1 = empty.
    """
    found = []
    there = positions.unsqueeze(-2)  # [..., 1, S]
    for some, here in zip(torch.split(unit, BLOCK, -2), torch.split(positions, BLOCK, -1), strict=True):
        near = some @ unit.transpose(-1, -2)  # [..., B, S]
        found.append(near.masked_fill_((there < 0) | (there == here.unsqueeze(-1)), 0).amax(-1))
    return -torch.cat(found, -1)
