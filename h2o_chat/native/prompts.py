"""Attention of a prompt in the library: what `LayerStep.attended` (`cache/attention.py`) computes in torch.

Shapes: R rows, N tokens of a pass, H KV heads, G query heads per KV head, S slots, T of them in use at most,
D head size.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor

from h2o_chat.cache.arena import New
from h2o_chat.cache.attention import Attended, LayerStep
from h2o_chat.cache.clock import Pass
from h2o_chat.native import library as c
from h2o_chat.policies import scores


def attend(
    call: Any, layer: int, here: LayerStep, now: Pass, queries: Tensor, keys: Tensor, values: Tensor
) -> Attended:
    """One pass: queries [R, H, G, N, D] attend to the slots and to keys and values [R, H, N, D].

    Args:
        call: of the library, with a `Pass`.
        layer: its number in the model.
    """
    arena, distance = here.arena, here.arena.plan.distance
    rows, heads, groups, tokens, size = queries.shape
    slots, most_used = arena.slots, arena.shape[3] if now.used is None else now.used
    # Slots are written from the first on, until something is evicted.
    ages = zip(now.first, now.in_use, strict=True)
    used = [in_use if first == in_use else most_used for first, in_use in ages]
    queries, keys, values = map(_side_by_side, (queries, keys, values))
    if values.stride() != keys.stride():
        keys, values = keys.contiguous(), values.contiguous()
    held_keys, held_values = arena.held_keys(here.at), arena.held_values(here.at)  # [R, H, S, D]
    attended = torch.empty(rows, heads, groups, tokens, size)
    gain = torch.empty(rows, heads, groups, most_used + tokens)
    lately = torch.empty_like(gain) if arena.plan.observe else None
    base = arena.base.tolist()
    assert distance is not None
    asked = c.Pass(
        layer=layer,
        rows=rows,
        tokens=tokens,
        slots=arena.shape[3],
        most_used=most_used,
        clamps=arena.clamps,
        edge=distance.reach - 1,
        forget=arena.plan.policy.forget,
        remember=scores.REMEMBER,
        used=c.int32s(used),
        first=c.int32s(now.first),
        count=c.int32s(now.count),
        index=c.int32s([first - zero for first, zero in zip(now.first, base, strict=True)]),
        queries=queries.data_ptr(),
        keys=keys.data_ptr(),
        values=values.data_ptr(),
        query_row=queries.stride(0),
        query_head=queries.stride(2 if groups > 1 else 1),  # that of a single one may be any number
        query_token=queries.stride(3),
        key_row=keys.stride(0),
        key_head=keys.stride(1),
        key_token=keys.stride(2),
        held_keys=held_keys.data_ptr(),
        held_values=held_values.data_ptr(),
        positions=slots.positions[here.at].data_ptr(),
        clamped=slots.clamped[here.at].data_ptr(),
        attended=attended.data_ptr(),
        gain=gain.data_ptr(),
        lately=None if lately is None else lately.data_ptr(),
    )
    call(ctypes.byref(asked))
    return attended, New(keys, values, gain.transpose(2, 3), None if lately is None else lately.sum(2))


def _side_by_side(numbers: Tensor) -> Tensor:
    """The components of a head lie side by side."""
    return numbers if numbers.stride(-1) == 1 else numbers.contiguous()
