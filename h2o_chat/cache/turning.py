"""Turns stored keys to another rotation index: clamping, rebasing, pinning (`distance.py`).

Shapes: L layers, R rows, H KV heads, S slots, D head size.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from h2o_chat.base import devices
from h2o_chat.cache.arena import Arena
from h2o_chat.cache.distance import indices


def clamp(arena: Arena, clamped_below: Sequence[int]) -> None:
    """Turns the keys at positions below `clamped_below` of each row to their clamped index and marks them."""
    slots, distance = arena.slots, arena.plan.distance
    if arena.rope is None or distance is None:
        return
    leaving = (slots.positions >= 0) & ~slots.clamped & (slots.positions < arena.per_row(clamped_below))
    to = distance.clamped_indices(slots.protected, slots.positions)
    _turn(arena, leaving, to - indices(slots.positions, arena.rope_origin))
    slots.clamped.logical_or_(leaving)


def rebase(arena: Arena, rope_origin: Sequence[int]) -> None:
    """Turns keys that are not clamped back, so that the positions `rope_origin` [R] have rotation index 0."""
    slots, new = arena.slots, arena.per_row(rope_origin)[:, 0, 0]
    shift = (arena.rope_origin - new)[:, None, None].expand_as(slots.positions)
    _turn(arena, (slots.positions >= 0) & ~slots.clamped & (shift != 0), shift)
    arena.rope_origin.copy_(new)


def protect(arena: Arena, protected: Tensor) -> None:
    """Sets which slots are protected, [L, R, H, S] bool, and turns clamped keys whose distance changes."""
    slots, distance = arena.slots, arena.plan.distance
    if distance is not None:
        was, to = (distance.clamped_indices(p, slots.positions) for p in (slots.protected, protected))
        _turn(arena, slots.clamped & (to != was), to - was)
    slots.protected.copy_(protected)


def _turn(arena: Arena, which: Tensor, by: Tensor) -> None:
    """Turns the keys of the slots in `which`, [L, R, H, S] bool, by positions `by`, [L, R, H, S]."""
    if arena.rope is None or arena.plan.bits is not None:
        return
    keys = arena.slots.keys
    if devices.reads_free(keys.device):
        keys[which] = arena.rope.rotate(keys[which], by[which])
    else:
        keys.copy_(torch.where(which.unsqueeze(-1), arena.rope.rotate(keys, by), keys))
