"""How each kernel is launched, by its grid and block sizes; several rows are left to a product of torch.

Sizes were chosen on an H100 (docs/GPU.md); any others give the same numbers but for the order of sums.
"""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor
from torch.nn import functional

from h2o_chat.graph import product_kernels as kernels
from h2o_chat.graph.int4 import Int4

MULTIPROCESSORS = 132
"""An H100 or H200 has so many; a card with fewer or more works as well with the shares that follow."""
SLOTS_AT_ONCE = 64
"""One program of `attention_kernels.attend` reads so many slots in one turn of its loop."""
BYTES_WARPS = 8
"""With slots in bytes, half as many in one turn where a program has few: 4 warps lack registers."""


@dataclass(frozen=True)
class Share:
    """Sizes of one program of a product, which reads whole rows of the matrix."""

    each: int  # programs for each multiprocessor
    rows: int  # at a time
    warps: int


SHARES = {  # (in 4 bits, gated): up to 4,096 columns, up to 16,384, more
    (False, False): (Share(4, 2, 4), Share(1, 2, 16), Share(1, 1, 16)),
    (False, True): (Share(4, 1, 4), Share(1, 1, 16), Share(1, 1, 16)),
    (True, False): (Share(4, 4, 4), Share(2, 4, 4), Share(1, 4, 8)),
    (True, True): (Share(4, 4, 4), Share(2, 2, 4), Share(1, 2, 8)),
}
"""A program keeps the activations: the more columns, the more registers it needs."""
INTERPRETED = Share(each=1, rows=32, warps=1)
"""Triton's interpreter takes a millisecond for a program, whatever its size."""


def early(device: torch.device) -> dict[str, bool]:
    """Options of a launch: whether its kernel starts before the last one has ended (`product_kernels.py`)."""
    able = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
    return {"EARLY": able} | ({"launch_pdl": True} if able else {})


def product(
    matrix: Tensor | Int4,
    x: Tensor,
    y: Tensor,
    norm: Tensor | None = None,
    epsilon: float = 0.0,
    *,
    bias: Tensor | None = None,
    gated: bool = False,
    adds: bool = False,
) -> None:
    """y [R, N] = x [R, K] times a matrix [N, K], with what `product_kernels.product` fuses into it.

    One row reads weights as fast as memory gives them. Several share what is read, which is a product of two
    matrices: torch's.

    Args:
        norm: weights [K] of an RMSNorm of x.
        gated: the matrix is [2N, K], and y = silu(first half) * second half.
        adds: y += instead of y =.
    """
    rows, columns = matrix.shape
    several_rows = x.numel() > columns  # x may be [K]
    if several_rows:
        kind = torch.bfloat16 if x.is_cuda else torch.float32
        numbers = matrix.dequantised(kind) if isinstance(matrix, Int4) else matrix
        x = x if norm is None else functional.rms_norm(x, x.shape[-1:], norm.float(), epsilon)
        found = functional.linear(x.to(numbers.dtype), numbers, bias).float()
        if gated:
            gate, up = found.chunk(2, -1)
            found = functional.silu(gate) * up
        if adds:
            y.add_(found)
        else:
            y.copy_(found)
        return
    rows = rows // 2 if gated else rows
    share, programs = INTERPRETED, 1
    if x.is_cuda:
        share = SHARES[isinstance(matrix, Int4), gated][(columns > 4096) + (columns > 16_384)]
        programs = share.each * MULTIPROCESSORS
    mine = triton.cdiv(triton.cdiv(rows, programs), share.rows) * share.rows
    # Pointers that are not given are not read.
    of = (x, x if norm is None else norm, x if bias is None else bias, y, rows, columns, mine, epsilon)
    fused = {"NORM": norm is not None, "BIAS": bias is not None, "GATED": gated, "ADDS": adds}
    options = {"BLOCK_N": share.rows, "num_warps": share.warps, **fused, **early(x.device)}
    grid = (triton.cdiv(rows, mine),)
    if isinstance(matrix, Int4):
        groups = triton.next_power_of_2(columns // 32)
        kernels.product_int4[grid](matrix.words, matrix.scales, *of, **options, ASM=x.is_cuda, GROUPS=groups)
    else:
        kernels.product[grid](matrix, *of, **options, COLUMNS=triton.next_power_of_2(columns))


def splits(rooms: int, slots: int) -> int:
    """Programs for the slots of one of `rooms` rows x KV heads: about two for each multiprocessor in all."""
    most = triton.cdiv(slots, SLOTS_AT_ONCE)
    wanted = triton.next_power_of_2(triton.cdiv(2 * MULTIPROCESSORS, rooms))
    return int(max(1, min(most, wanted, 64)))


def slots_received(slots: int, splits: int, groups: int) -> int:
    """Slots that a program of `attention_kernels.receive` sees together: its share, up to 1,024 numbers."""
    share = triton.next_power_of_2(triton.cdiv(slots, splits))
    return int(min(share, 1024 // triton.next_power_of_2(groups)))
