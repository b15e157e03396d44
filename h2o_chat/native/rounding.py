"""Weights rounded to 4 or 8 bits: one scale per row and group of 32 columns.

Groups stand side by side while they are rounded, [32, N]: sums over a group are then sums of rows, which
torch computes several times faster than sums along rows of 32.
"""

import torch
from torch import Tensor

from h2o_chat.native.layout import GROUP

STEPS = (1.05, 1.02, 1.0, 0.97, 0.94, 0.91)
"""Scales that are tried for 4 bits, as multiples of the one at which the largest weight is -8."""


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
    """Of the scales tried, for each group the one with the smallest sum of squared errors. [N] fp16"""
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
    """groups / scales; 0 where the scale is 0: all weights are, or too small for fp16."""
    return groups * torch.where(scales == 0, 0, 1 / scales)
