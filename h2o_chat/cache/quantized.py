"""Keys and values in 8 or 4 bits: one row of bytes for each token and KV head, with its scale at the end.

A row is rounded only once: keys are stored before RoPE and turned when they are read. One scale per token, as
in FlexGen (arXiv 2303.06865), which H2O's 4-bit figures use.
Shapes: any leading ones, D components, B bytes.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

BITS: Mapping[str, int] = {"int8": 8, "int4": 4}  # bits per component by `--kv-dtype`

SCALE_BYTES = 4  # bytes of the lowest value and the step, in fp16


def row_bytes(size: int, bits: int) -> int:
    """B, the bytes of `size` components and their scale; `size` (D) is even."""
    return size * bits // 8 + SCALE_BYTES


def quantise(x: Tensor, bits: int) -> Tensor:
    """Rounds each row of x [..., D], D even, to a grid from its lowest to its highest value. [..., B] uint8

    The error of a component is at most half a step, `(highest - lowest) / (2^bits - 1) / 2`, plus the
    rounding of lowest and step to fp16: less than 2^-10 of the largest component (infinite past 65,504).
    """
    exact = x.to(torch.promote_types(x.dtype, torch.float32))
    most = 2**bits - 1
    low, high = exact.amin(-1, keepdim=True), exact.amax(-1, keepdim=True)
    low = low.to(torch.float16)
    step = ((high - low) / most).to(torch.float16)
    grid = torch.where(step > 0, step, 1)
    levels = ((exact - low) / grid).round().clamp(0, most).to(torch.uint8)  # [..., D]
    if bits == 4:  # two neighbours in a byte
        levels = levels[..., 0::2] | levels[..., 1::2] << 4
    return torch.cat((levels, torch.cat((low, step), -1).view(torch.uint8)), -1)


def dequantise(rows: Tensor, bits: int, dtype: torch.dtype) -> Tensor:
    """The inverse of `quantise`. [..., B] uint8 -> [..., D] in `dtype`; zero bytes give zeros"""
    exact = torch.promote_types(dtype, torch.float32)
    levels, scale = rows[..., :-SCALE_BYTES], rows[..., -SCALE_BYTES:]
    low, step = scale.clone(memory_format=torch.contiguous_format).view(torch.float16).to(exact).chunk(2, -1)
    if bits == 4:
        levels = torch.stack((levels & 15, levels >> 4), -1).flatten(-2)
    return torch.addcmul(low, levels.to(exact), step).to(dtype)
