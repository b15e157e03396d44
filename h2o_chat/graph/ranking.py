"""What `cache/settle.py` needs of all slots, on a GPU: by the kernels of `slot_kernels.py`.

Shapes: L layers, R rows of which r are due, H KV heads, S slots, D head size.
"""

import torch
import triton
from torch import Tensor

from h2o_chat.cache.arena import Arena
from h2o_chat.cache.settle import Kernels, compare_keys
from h2o_chat.graph import prompts
from h2o_chat.graph import slot_kernels as kernels
from h2o_chat.policies.policies import Slots, output_change_of_heads

BLOCK = 64
"""Slots that a program of `stands_out` looks at together; the other two need more registers for each."""


def compare(arena: Arena, part: Slots, index: Tensor) -> dict[str, Tensor]:
    """`settle.compare_keys`. Keys of 16 bits are compared in fp16, which rounds finer than bf16."""
    rope = arena.rope
    layers, rows, heads, slots, size = part.keys.shape
    whole = rope is None or (not rope.interleaved and 2 * len(rope.inv_freq) == size)
    if arena.plan.bits is not None or part.keys.dtype == torch.float64 or not whole:
        return compare_keys(arena, part, index)
    keys, positions = _by_layer(part.keys), part.positions.contiguous()
    kind = torch.float32 if keys.dtype == torch.float32 else torch.float16
    unit = torch.empty(layers * rows * heads, slots, size, dtype=kind, device=keys.device)
    kernels.unit_keys[(len(unit), triton.cdiv(slots, BLOCK // 4))](
        *(keys, index.to(torch.int32).contiguous(), positions),
        *(positions if rope is None else rope.inv_freq.to(keys.device, torch.float32), unit),
        *(keys.stride(0), rows * heads, slots),
        SIZE=size,
        HALF_P=triton.next_power_of_2(size // 2),
        BLOCK=BLOCK // 4,
        ROPE=rope is not None,
    )
    mean = torch.nn.functional.normalize(unit.sum(1, dtype=torch.float32), dim=-1)
    found = torch.empty(2, *part.positions.shape, dtype=torch.float32, device=keys.device)
    pairs = arena.plan.policy.pairs
    kernels.stands_out[(len(unit), triton.cdiv(slots, BLOCK))](
        *(unit, mean, *found, slots),
        SIZE=size,
        SIZE_P=max(16, triton.next_power_of_2(size)),
        BLOCK=BLOCK,
        PAIRS=pairs,
    )
    return dict(zip(("distinctness", "novelty")[: 1 + pairs], found, strict=False))


def change(slots: Slots) -> Tensor:
    """`policies.output_change_of_heads`. [L, r, H, S]"""
    values, score = slots.states["values"], slots.score.contiguous()
    if not values.is_floating_point() or values.dtype == torch.float64:
        return output_change_of_heads(slots)
    values = _by_layer(values)
    layers, rows, heads, count, groups = score.shape
    fourth = torch.empty_like(score)
    kernels.output_change[(layers * rows * heads, groups)](
        *(values, score, fourth, values.stride(0), rows * heads, count),
        GROUPS=groups,
        SIZE=values.shape[4],
        SIZE_P=triton.next_power_of_2(values.shape[4]),
        BLOCK=BLOCK // 2,
    )
    return fourth.sum(-1).sqrt().sqrt()


def _by_layer(stored: Tensor) -> Tensor:
    """[L, r, H, S, D], contiguous but for the step from layer to layer."""
    return stored if stored[0].is_contiguous() else stored.contiguous()


KERNELS = Kernels(compare, change, prompts.attend)
"""Slots are given up by these on a GPU, and a prompt attends."""
