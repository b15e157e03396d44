"""Rounds weights to 4 or 8 bits, with one scale per row and group of 32 columns, and lays them out in tiles.

Groups are transposed to [32, N] while they are rounded, since torch sums over rows several times faster than
along rows of 32. Shapes: R rows; C columns, a multiple of 32; G groups of 32 columns; T tiles of 16 rows, for
which R is a multiple of 16 (`layout.py`).
"""

import torch
from torch import Tensor

from h2o_chat.native.layout import GROUP, TILE

STEPS = (1.05, 1.02, 1.0, 0.97, 0.94, 0.91)
"""Scales that are tried for 4 bits, as multiples of the one that maps the largest weight to -8."""


def rounded(weights: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Weights [R, C] fp32, C in whole groups, as q [R, C] int8 and scales [R, G] fp16: w ~ q * scale."""
    groups = weights.view(-1, GROUP).t().contiguous()
    if bits == 8:
        scales, least, most = (groups.abs().amax(0) / 127).half(), -127, 127
    else:
        scales, least, most = _int4_scales(groups), -8, 7
    q = _divided(groups, scales.float()).round_().clamp_(least, most).to(torch.int8)
    return q.t().reshape(weights.shape), scales.view(len(weights), -1)


def _int4_scales(groups: Tensor) -> Tensor:
    """The tried scale with the smallest sum of squared errors for each group. [N] fp16"""
    most, least = groups.amax(0), groups.amin(0)
    largest = torch.where(most > -least, most, least)
    best = (largest / -8).half()
    smallest = torch.full_like(largest, torch.inf)
    for step in STEPS:
        scales = (largest * (step / -8)).half()
        exact = scales.float()
        again = _divided(groups, exact).round_().clamp_(-8, 7).mul_(exact)
        error = again.sub_(groups).square_().sum(0)
        better = error < smallest
        best = torch.where(better, scales, best)
        smallest = torch.where(better, error, smallest)
    return best


def _divided(groups: Tensor, scales: Tensor) -> Tensor:
    """groups / scales; 0 where the scale is 0 (weights that are 0, or too small for fp16)."""
    return groups * torch.where(scales == 0, 0, 1 / scales)


def tiled(q: Tensor, bits: int) -> Tensor:
    """q [R, C] int8 as bytes [T, G, 4 or 8, 16, 4]."""
    quads = q.view(-1, TILE, q.shape[1] // GROUP, 8, 4).permute(0, 2, 3, 1, 4)  # [T, G, 8, 16, 4]
    if bits == 8:
        return quads.contiguous().view(torch.uint8) ^ 128
    halves = (quads + 8).contiguous().view(torch.uint8)
    return halves[:, :, :4] | halves[:, :, 4:] << 4


def tiled_scales(scales: Tensor) -> Tensor:
    """scales [R, G] as [T, G, 16]."""
    return scales.view(-1, TILE, scales.shape[1]).transpose(1, 2).contiguous()
