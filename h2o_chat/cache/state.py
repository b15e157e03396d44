"""What is known of every slot, in one table. No torch.

Allocation, emptying, snapshots, saved files and their checks, the choice of rows and byte counts all follow
from it. Who writes a new state: docs/ARCHITECTURE.md, "To add".
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class State:
    """One number, flag or row of numbers that every slot has: a tensor [L, R, H, S, ...]."""

    name: str
    trailing: Literal["", "key", "value", "group"]  # after [L, R, H, S]: D of keys or values, G query heads
    dtype: Literal["kv", "exact", "int32", "bool"]  # kv: as the model's, or bytes; exact: fp32, or fp64 as it
    empty: float = 0  # what an empty slot holds


STATES = (
    # Keys are turned to their rotation index (`distance.py`); in bytes they are not turned.
    State("keys", "key", "kv"),
    State("values", "value", "kv"),
    # In the conversation; -1 = empty.
    State("positions", "", "int32", empty=-1),
    # Attention received from each query head, forgotten at the policy's rate.
    State("score", "group", "exact"),
    # Share of its KV head's attention lately: a mean over about the last 32 queries; kept with `observe`.
    State("lately", "", "exact"),
    # Read in a prompt, not generated.
    State("prompt", "", "bool"),
    # Sink, system prompt or pinned.
    State("protected", "", "bool"),
    # Every query meets its key at one fixed distance (`distance.py`).
    State("clamped", "", "bool"),
)

ORDER_BYTES = 4
"""Of each slot's place in the order of writing."""


def state_bytes(groups: int) -> int:
    """Bytes of one slot of one layer, row and KV head, beside its key and value; `groups` is G."""
    bytes_of, numbers = {"exact": 4, "int32": 4, "bool": 1}, {"": 1, "group": groups}
    own = [state for state in STATES if state.dtype != "kv"]
    return ORDER_BYTES + sum(bytes_of[state.dtype] * numbers[state.trailing] for state in own)
