"""Attention of a prompt in the library, equal to `LayerStep.attended` (`cache/attention.py`) in torch.

Shapes: R rows, N tokens of a pass, H KV heads, G query heads per KV head, S slots, T used, D head size.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor

from h2o_chat.cache.arena import PassResult
from h2o_chat.cache.attention import Attended, LayerStep
from h2o_chat.cache.clock import Pass
from h2o_chat.native import library as c
from h2o_chat.policies import scores


def attend(
    call: Any, here: LayerStep, this_pass: Pass, queries: Tensor, keys: Tensor, values: Tensor
) -> Attended:
    """One pass: queries [R, H, G, N, D] attend to the slots and to keys and values [R, H, N, D], in fp32.

    Args:
        call: calls the library with a `Pass`.
    """
    arena, distance = here.arena, here.arena.plan.distance
    rows, heads, groups, tokens, size = queries.shape
    slots, most_used = arena.slots, arena.leading(this_pass)
    # Until something is evicted, slots are filled from the first on.
    ages = zip(this_pass.first, this_pass.in_use, strict=True)
    used = [in_use if first == in_use else most_used for first, in_use in ages]
    asking, new_keys, new_values = map(_side_by_side, (queries, keys, values))
    if new_values.stride() != new_keys.stride():
        new_keys, new_values = new_keys.contiguous(), new_values.contiguous()
    held_keys = arena.held_keys(here.at).float()  # [R, H, S, D]
    held_values = arena.held_values(here.at).float()
    attended = torch.empty(rows, heads, groups, tokens, size, dtype=torch.float32)
    gain = torch.empty(rows, heads, groups, most_used + tokens, dtype=torch.float32)
    lately = torch.empty_like(gain) if arena.plan.observe else None
    origins = arena.rope_origin.tolist()
    assert distance is not None
    asked = c.Pass(
        layer=arena.layers[here.at],
        rows=rows,
        tokens=tokens,
        slots=arena.shape[3],
        most_used=most_used,
        clamps=arena.clamps,
        edge=distance.edge,
        decay_factor=arena.plan.decay_factor,
        lately_decay=scores.LATELY_DECAY,
        used=c.int32s(used),
        first=c.int32s(this_pass.first),
        count=c.int32s(this_pass.count),
        index=c.int32s([first - origin for first, origin in zip(this_pass.first, origins, strict=True)]),
        queries=asking.data_ptr(),
        keys=new_keys.data_ptr(),
        values=new_values.data_ptr(),
        query_row=asking.stride(0),
        query_head=asking.stride(2 if groups > 1 else 1),  # a view has any stride where G is 1
        query_token=asking.stride(3),
        key_row=new_keys.stride(0),
        key_head=new_keys.stride(1),
        key_token=new_keys.stride(2),
        held_keys=held_keys.data_ptr(),
        held_values=held_values.data_ptr(),
        positions=slots.positions[here.at].data_ptr(),
        clamped=slots.clamped[here.at].data_ptr(),
        attended=attended.data_ptr(),
        gain=gain.data_ptr(),
        lately=None if lately is None else lately.data_ptr(),
    )
    call(ctypes.byref(asked))
    gains = {"score": gain.transpose(2, 3)} | ({} if lately is None else {"lately": lately.sum(2)})
    return attended.to(queries.dtype), PassResult(keys, values, gains)


def _side_by_side(numbers: Tensor) -> Tensor:
    """`numbers` in fp32, with contiguous components of a head."""
    numbers = numbers.float()
    return numbers if numbers.stride(-1) == 1 else numbers.contiguous()
