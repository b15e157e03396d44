"""Computes the ranking of `h2o` over all slots on a GPU, for `cache/settle.py`.

Shapes: L layers, R rows of which r are due, H KV heads, S slots, D head size.
"""

import torch
import triton
from torch import Tensor

from h2o_chat.cache.settle import Kernels
from h2o_chat.graph import prompts
from h2o_chat.graph.attention_kernels import output_change
from h2o_chat.policies.policies import Slots, output_change_of_heads

BLOCK = 32
"""Slots that a program of `output_change` looks at together."""


def change(slots: Slots) -> Tensor:
    """`policies.output_change_of_heads`. [L, r, H, S]"""
    values, score = slots.states["values"], slots.score.contiguous()
    if not values.is_floating_point() or values.dtype == torch.float64:
        return output_change_of_heads(slots)
    values = values if values[0].is_contiguous() else values.contiguous()  # but for the step between layers
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


KERNELS = Kernels(change, prompts.attend)
"""Slots are given up by these on a GPU, and a prompt attends."""
