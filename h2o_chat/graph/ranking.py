"""The kernel that `cache/settle.py` ranks slots with on a GPU: how far the output would move without each.

It returns what `policies.output_change_of_heads` returns, and reads memory twice instead of thirty times.
Shapes: L layers, R rows of which r are due, H KV heads, G query heads per KV head, S slots, D head size.
Under TRITON_INTERPRET=1 it runs on a CPU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from h2o_chat.cache.settle import Kernels
from h2o_chat.graph import prompts
from h2o_chat.policies.policies import Slots, output_change_of_heads

BLOCK = 32
"""Slots that a program reads together."""


@triton.jit
def output_change(
    values,  # [L, R * H, S, D], layers `layer_step` numbers apart
    score,  # [L, R * H, S, G] fp32
    fourth,  # [L, R * H, S, G] fp32, written
    layer_step,
    heads,  # R * H
    slots,
    GROUPS: tl.constexpr,
    SIZE: tl.constexpr,
    SIZE_P: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Fourth power of how far a query head's output moves without a slot."""
    head, g = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d = tl.arange(0, SIZE_P)
    lies = values + head // heads * layer_step + (head % heads) * slots * SIZE
    totals = tl.zeros([BLOCK], tl.float32)
    outputs = tl.zeros([BLOCK, SIZE_P], tl.float32)
    for first in range(0, slots, BLOCK):
        s = first + tl.arange(0, BLOCK)
        given = tl.load(score + (head * slots + s) * GROUPS + g, mask=s < slots, other=0.0)
        mask = (s < slots)[:, None] & (d < SIZE)[None, :]
        value = tl.load(lies + s[:, None] * SIZE + d[None, :], mask=mask, other=0.0).to(tl.float32)
        totals += given
        outputs += given[:, None] * value
    total = tl.maximum(tl.sum(totals), 1.17549435e-38)
    output = tl.sum(outputs, 0) / total
    length = tl.sum(output * output)
    for first in range(0, slots, BLOCK):
        s = first + tl.arange(0, BLOCK)
        at = (head * slots + s) * GROUPS + g
        share = tl.load(score + at, mask=s < slots, other=0.0) / total
        mask = (s < slots)[:, None] & (d < SIZE)[None, :]
        value = tl.load(lies + s[:, None] * SIZE + d[None, :], mask=mask, other=0.0).to(tl.float32)
        squares = tl.sum(value * value, 1) + length - 2 * tl.sum(value * output[None, :], 1)
        change = share / tl.maximum(1 - share, 1.1920929e-07) * tl.sqrt(tl.maximum(squares, 0.0))
        tl.store(fourth + at, change * change * change * change, mask=s < slots)


def change(slots: Slots) -> Tensor:
    """`policies.output_change_of_heads`. [L, r, H, S]"""
    values, score = slots.states["values"], slots.score.contiguous()
    if not values.is_floating_point() or values.dtype == torch.float64:
        return output_change_of_heads(slots)
    values = _by_layer(values)
    layers, rows, heads, count, groups = score.shape
    fourth = torch.empty_like(score)
    output_change[(layers * rows * heads, groups)](
        *(values, score, fourth, values.stride(0), rows * heads, count),
        GROUPS=groups,
        SIZE=values.shape[4],
        SIZE_P=triton.next_power_of_2(values.shape[4]),
        BLOCK=BLOCK,
    )
    return fourth.sum(-1).sqrt().sqrt()


def _by_layer(stored: Tensor) -> Tensor:
    """[L, r, H, S, D], contiguous but for the step from layer to layer."""
    return stored if stored[0].is_contiguous() else stored.contiguous()


KERNELS = Kernels(change, prompts.attend)
"""For eviction and prompts on a GPU."""
