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


@dataclass(frozen=True)
class Share:
    """Sizes of one program of a product in 4 bits, which reads whole rows."""

    each: int  # programs for each multiprocessor
    rows: int  # at a time
    groups: int  # of 32 columns that a thread has


PLAIN = Blocks(rows=4, columns=1024, warps=4)
GATED = Blocks(rows=2, columns=1024, warps=4)
INTERPRETED = Blocks(rows=256, columns=1024, warps=1)
"""Triton's interpreter takes a millisecond for a program, whatever its size."""
INT4 = Share(each=4, rows=4, groups=1)
INT4_WIDE = Share(each=2, rows=4, groups=2)
"""Of more than 4,096 columns."""


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
    share: Share | None = None,
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
        groups = triton.next_power_of_2(columns // 32)
        chosen = share or (INT4 if groups <= 128 else INT4_WIDE)
        warps = min(16, max(1, groups // 32 // chosen.groups)) if x.is_cuda else 1
        programs = chosen.each * MULTIPROCESSORS if x.is_cuda else 1
        at_once = chosen.rows if x.is_cuda else 32
        mine = triton.cdiv(triton.cdiv(rows, programs), at_once) * at_once
        kernels.product_int4[(triton.cdiv(rows, mine),)](
            *(matrix.words, matrix.scales, x, norm if norm is not None else x, bias_given, y),
            *(rows, columns, mine, epsilon),
            **switches,
            NORM=norm is not None,
            ASM=x.is_cuda,
            BLOCK_N=at_once,
            GROUPS=groups,
            num_warps=warps,
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


def splits(rooms: int, slots: int) -> int:
    """Programs that share the slots of one KV head, so that about two stand on each multiprocessor.

    Args:
        rooms: rows times KV heads.
    """
    most = triton.cdiv(slots, SLOTS_AT_ONCE)
    wanted = triton.next_power_of_2(triton.cdiv(2 * MULTIPROCESSORS, rooms))
    return int(max(1, min(most, wanted, 64)))


def slots_received(slots: int, splits: int, groups: int) -> int:
    """Slots that a program of `attention_kernels.receive` sees together: its share, up to 1,024 numbers."""
    share = triton.next_power_of_2(triton.cdiv(slots, splits))
    return int(min(share, 1024 // triton.next_power_of_2(groups)))
