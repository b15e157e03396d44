"""Weights in 4 bits on a GPU, rounded as on a CPU (`native/rounding.py`).

Shapes: N rows, K columns, a multiple of 256.
"""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor, nn

from h2o_chat.graph import product_kernels as kernels
from h2o_chat.native.rounding import rounded

BLOCK = 256
"""Columns of a block; a matrix with another number of columns stays as it is."""
_ROWS_AT_ONCE = 1 << 12  # rows rounded together: rounding takes some 60 bytes for each of their weights


@dataclass(frozen=True)
class Int4:
    """A matrix [N, K] in 4 bits, with one scale for each row and group of 32 columns."""

    words: Tensor  # [N, K / 256, 32] int32: nibble s of word w is column 32 s + w of its block, plus 8
    scales: Tensor  # [N, K / 256, 8] fp16: a group is four words, so that one thread needs one scale

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)"""
        rows, blocks, _ = self.words.shape
        return rows, blocks * BLOCK

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        """q * scale as a matrix. [N, K]"""
        rows, columns = self.shape
        found = torch.empty(rows, columns, dtype=dtype, device=self.words.device)
        at_once = 8 if found.is_cuda else 256
        kernels.int4_as_numbers[(triton.cdiv(rows, at_once), columns // BLOCK)](
            self.words, self.scales, found, rows, columns, BLOCK_N=at_once
        )
        return found


def packed(weights: Tensor) -> Int4:
    """Weights [N, K] rounded to 4 bits, on their device."""
    words, scales = [], []
    for some in torch.split(weights, _ROWS_AT_ONCE):
        blocks = some.float().view(len(some), -1, 8, 8, 4)  # [n, K / 256, nibble, group, word in the group]
        q, scale = rounded(blocks.transpose(2, 3).reshape(some.shape), 4)
        nibbles = (q.to(torch.int32) + 8).view(len(some), -1, 8, 8, 4)  # [n, K / 256, group, nibble, word]
        shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=q.device)[:, None]
        words.append((nibbles << shifts).sum(3, dtype=torch.int32).flatten(2))  # the highest makes the sign
        scales.append(scale.view(len(some), -1, 8))
    return Int4(torch.cat(words), torch.cat(scales))


class Int4Linear(nn.Module):
    """A linear layer in 4 bits, for the prompts that transformers reads."""

    def __init__(self, held: Int4, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.held, self.bias, self.dtype = held, bias, dtype
        self.out_features, self.in_features = held.shape

    def forward(self, x: Tensor) -> Tensor:
        """x [..., K] -> [..., N]"""
        return nn.functional.linear(x, self.held.dequantised(self.dtype), self.bias)
