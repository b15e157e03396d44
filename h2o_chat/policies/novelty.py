"""How a key stands among the others kept, by content alone: pure functions on keys of length 1, before RoPE.

Shapes: any leading dimensions (layers L, rows R, KV heads H), S slots, D head size.
"""

import torch
from torch import Tensor

BLOCK = 128
"""Keys compared with all others at a time, so that no S x S matrix is held, however long a prompt."""


def distinctness(unit: Tensor) -> Tensor:
    """Minus the cosine of each key to the mean of the kept keys (KeyDiff, arXiv 2504.15364). [..., S]

    Args:
        unit: [..., S, D] keys of length 1, before RoPE; 0 where a slot is empty.
    """
    mean = torch.nn.functional.normalize(unit.sum(-2), dim=-1)  # [..., D]
    return -(unit @ mean.unsqueeze(-1)).squeeze(-1)


def novelty(unit: Tensor) -> Tensor:
    """Minus the cosine of each key to the nearest other one kept; 0 where all others point away. [..., S]

    Redundancy as in R-KV (arXiv 2505.24133), which compares the newest keys after RoPE.

    Args:
        unit: [..., S, D] keys of length 1, before RoPE; 0 where a slot is empty.
    """
    found = []
    for start in range(0, unit.shape[-2], BLOCK):
        near = unit[..., start : start + BLOCK, :] @ unit.transpose(-1, -2)  # [..., B, S]
        near.diagonal(start, -2, -1).zero_()  # itself
        found.append(near.amax(-1))
    return -torch.cat(found, -1)
