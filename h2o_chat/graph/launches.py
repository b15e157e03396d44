"""How each kernel is launched: its grid and block sizes, for one row of activations.

Sizes were chosen on an H100 (docs/GPU.md); any others give the same numbers but for the order of sums.
"""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from h2o_chat.graph import product_kernels as kernels
from h2o_chat.graph.int4 import Int4

MULTIPROCESSORS = 132
"""An H100 or H200 has so many; a card with fewer or more works as well with the shares that follow."""
SLOTS_AT_ONCE = 64
"""One program of `attention_kernels.attend` reads so many slots in one turn of its loop."""


@dataclass(frozen=True)
class Blocks:
    """Sizes of one program of a product."""

    rows: int
    columns: int  # of the matrix, at a time
    warps: int


PLAIN = Blocks(rows=4, columns=1024, warps=4)
GATED = Blocks(rows=2, columns=1024, warps=4)
INT4 = Blocks(rows=2, columns=1024, warps=1)
INTERPRETED = Blocks(rows=256, columns=1024, warps=1)
"""Triton's interpreter takes a millisecond for a program, whatever its size."""


def early(device: torch.device) -> dict[str, bool]:
    """Options of a launch: whether its kernel starts before the last one has ended (`product_kernels.py`)."""
    able = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
    return {"EARLY": able} | ({"launch_pdl": True} if able else {})


def product(
    matrix: Tensor | Int4,
    x: Tensor,
    y: Tensor,
    *,
    norm: Tensor | None = None,
    epsilon: float = 0.0,
    bias: Tensor | None = None,
    gated: bool = False,
    adds: bool = False,
    blocks: Blocks | None = None,
) -> None:
    """y [N] = matrix [N, K] @ x [K], with what `product_kernels.product` fuses into it.

    Args:
        norm: weights [K] of an RMSNorm of x.
        gated: the matrix is [2N, K], and y = silu(first half) * second half.
        adds: y += instead of y =.
    """
    rows, columns = matrix.shape
    rows = rows // 2 if gated else rows
    if not x.is_cuda:
        blocks = INTERPRETED
    bias_given = bias if bias is not None else x  # not read where there is none
    switches = {"BIAS": bias is not None, "GATED": gated, "ADDS": adds, **early(x.device)}
    if isinstance(matrix, Int4):
        chosen = blocks or INT4
        kernels.product_int4[(triton.cdiv(rows, chosen.rows),)](
            *(matrix.words, matrix.scales, *_in_bytes(x, norm, epsilon), bias_given, y, rows, columns),
            **switches,
            ASM=x.is_cuda,
            BLOCK_N=chosen.rows,
            BLOCK_G=min(chosen.columns, triton.next_power_of_2(columns)) // 32,
            num_warps=chosen.warps,
        )
        return
    chosen = blocks or (GATED if gated else PLAIN)
    kernels.product[(triton.cdiv(rows, chosen.rows),)](
        *(matrix, x, norm if norm is not None else x, bias_given, y, rows, columns, epsilon),
        **switches,
        NORM=norm is not None,
        BLOCK_N=chosen.rows,
        BLOCK_K=min(chosen.columns, triton.next_power_of_2(columns)),
        num_warps=chosen.warps,
    )


def _in_bytes(x: Tensor, norm: Tensor | None, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Activations [K] in 8 bits, as `product_kernels.in_bytes` writes them: words, scales, sums."""
    columns = x.shape[-1]
    words = torch.empty(columns // 4, dtype=torch.int32, device=x.device)
    scales, sums = torch.empty(2, columns // 32, device=x.device)
    at_once = 16 if x.is_cuda else triton.next_power_of_2(columns // 32)
    kernels.in_bytes[(triton.cdiv(columns // 32, at_once),)](
        *(x, norm if norm is not None else x, words, scales, sums, columns, epsilon),
        NORM=norm is not None,
        **early(x.device),
        BLOCK=1024,
        BLOCK_G=at_once,
    )
    return words, scales, sums


def splits(rooms: int, slots: int) -> int:
    """Programs that share the slots of one KV head, so that about two stand on each multiprocessor.

    Args:
        rooms: rows times KV heads.
    """
    most = triton.cdiv(slots, SLOTS_AT_ONCE)
    wanted = triton.next_power_of_2(triton.cdiv(2 * MULTIPROCESSORS, rooms))
    return int(max(1, min(most, wanted, 64)))
