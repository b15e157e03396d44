"""Converts rounded weights to the order in which matrix products read them (`layout.py`).

Shapes: R rows, a multiple of 16; C columns, a multiple of 32; T tiles of 16 rows, G groups of 32 columns.
"""

import torch
from torch import Tensor

from h2o_chat.native.layout import GROUP, TILE


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
