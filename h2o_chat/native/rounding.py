"""Weights rounded to 4 or 8 bits: one scale per row and group of 32 columns."""

import torch
from torch import Tensor

from h2o_chat.native.layout import GROUP

STEPS = (1.0, 0.96, 0.92, 0.88, 0.84, 0.80)
"""Scales that are tried for 4 bits, as shares of the one at which the largest weight is -8."""


def rounded(weights: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Weights [R, C] fp32, C in whole groups, as q [R, C] int8 and scales [R, G] fp16: w ~ q * scale."""
    groups = weights.view(len(weights), -1, GROUP)  # [R, G, 32]
    scales = _int8_scales(groups) if bits == 8 else _int4_scales(groups)
    least, most = (-127, 127) if bits == 8 else (-8, 7)
    q = _divided(groups, scales.float()).round_().clamp_(least, most)
    return q.to(torch.int8).flatten(1), scales


def _int8_scales(groups: Tensor) -> Tensor:
    return (groups.abs().amax(2) / 127).half()


def _int4_scales(groups: Tensor) -> Tensor:
    """Of the scales tried, the one with the smallest sum of squared errors."""
    largest = groups.gather(2, groups.abs().argmax(2, keepdim=True)).squeeze(2)  # [R, G], with its sign
    best = (largest / -8).half()
    least = torch.full_like(largest, torch.inf)
    for step in STEPS:
        scales = (largest * (step / -8)).half()
        exact = scales.float()
        q = _divided(groups, exact).round_().clamp_(-8, 7)
        error = (q * exact.unsqueeze(2) - groups).square_().sum(2)
        better = error < least
        best = torch.where(better, scales, best)
        least = torch.where(better, error, least)
    return best


def _divided(groups: Tensor, scales: Tensor) -> Tensor:
    """groups / scales; 0 where the scale is 0 (all weights are, or are below what fp16 can hold)."""
    inverse = torch.where(scales == 0, 0, 1 / scales)
    return groups * inverse.unsqueeze(2)
