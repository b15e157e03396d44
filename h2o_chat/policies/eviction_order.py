"""The rules that all policies share: what is safe, what no later query sees, which slots are lowest.

Pure functions on tensors. Shapes: L layers, R rows, H KV heads, S slots.
"""

import numpy as np
import torch
from torch import Tensor

from h2o_chat.base import devices
from h2o_chat.base.errors import UsageError
from h2o_chat.policies.policies import Policy, Slots


def checked_priority(policy: Policy, slots: Slots) -> Tensor:
    """Returns the policy's priority, without NaN and infinities: these would stand above what is safe.

    Raises:
        UsageError: the policy ranks by integers or flags, or not each slot by one number.
    """
    priority = policy.priority(slots)
    if priority.shape != slots.positions.shape:
        raise UsageError(
            f"The policy {policy.name!r} ranks by numbers of the shape {tuple(priority.shape)}.",
            f"Return one number for each slot: {tuple(slots.positions.shape)}.",
        )
    if not priority.is_floating_point():
        raise UsageError(f"The policy {policy.name!r} ranks by {priority.dtype}.", "Return floating numbers.")
    return priority.nan_to_num()


def protected_priority(priority: Tensor, slots: Slots, recent_from: Tensor, visible_from: Tensor) -> Tensor:
    """The policy's priority under the rules that all policies share; the lowest goes first. [L, R, H, S]

    Args:
        priority: [L, R, H, S], of `checked_priority`.
        slots: whose positions and `protected` count: sinks, system prompt, pins.
        recent_from: [R, 1, 1] positions from here on are recent, hence safe.
        visible_from: [L or 1, R, 1, 1] no later query sees positions before this (sliding-window layers):
            they go first, protected ones too. Empty slots (-1) fall under the same rule.
    """
    safe = slots.protected | (slots.positions >= recent_from)
    priority = priority.masked_fill(safe, torch.inf)
    return priority.masked_fill(slots.positions < visible_from, -torch.inf)


def lowest(priority: Tensor, positions: Tensor, count: int) -> Tensor:
    """The `count` slots with the lowest priority; ties drop the oldest. [L, R, H, S] -> [L, R, H, count]"""
    if count == 1:
        tied = priority == priority.amin(-1, keepdim=True)
        return positions.masked_fill(~tied, torch.iinfo(positions.dtype).max).argmin(-1, keepdim=True)
    if priority.dtype == torch.float32:
        keys = _one_key(priority, positions)
        if devices.reads_free(keys.device):  # numpy takes half of torch's time
            return torch.from_numpy(np.argpartition(keys.numpy(), count - 1, axis=-1)[..., :count])
        return keys.topk(count, largest=False, sorted=False).indices
    by_age = positions.argsort(dim=-1, stable=True)
    return by_age.gather(-1, priority.gather(-1, by_age).argsort(dim=-1, stable=True))[..., :count]


def _one_key(priority: Tensor, positions: Tensor) -> Tensor:
    """Whole numbers in the order of the priority [..., S] fp32, and of positions where those are equal.

    This way one sort is enough. The bits of a float, read as an integer, sort like the float, except for
    negative numbers.
    """
    bits = (priority + 0.0).view(torch.int32)  # -0 becomes 0
    bits = bits ^ ((bits >> 31) & torch.iinfo(torch.int32).max)
    return (bits.long() << 32) + positions
