"""The states of every slot, in one table. No torch.

Allocation, emptying, snapshots, saved files and their checks, the selection of rows and byte counts follow
from it. To add a state: docs/ARCHITECTURE.md, "To add".
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class State:
    """One number, flag or vector of every slot: a tensor [L, R, H, S, ...]."""

    name: str
    trailing: Literal["", "key", "value", "group"]  # after [L, R, H, S]: D of keys or values, G query heads
    dtype: Literal["kv", "exact", "int32", "bool"]  # kv: the model's, or bytes; exact: fp32, or fp64
    empty: float = 0  # its value in an empty slot


STATES = (
    # Keys are turned to their rotation index (`distance.py`); quantised ones are not turned.
    State("keys", "key", "kv"),
    State("values", "value", "kv"),
    # Position in the conversation; -1 = empty.
    State("positions", "", "int32", empty=-1),
    # Attention received from each query head, decayed at the policy's rate.
    State("score", "group", "exact"),
    # Share of its KV head's attention, a mean over about the last 32 queries; kept with `observe`.
    State("lately", "", "exact"),
    # A prompt token, not a generated one.
    State("prompt", "", "bool"),
    # Sink, system prompt or pinned.
    State("protected", "", "bool"),
    # Its key has a fixed distance to every query (`distance.py`).
    State("clamped", "", "bool"),
)

ORDER_BYTES = 4  # bytes of a slot's entry in `Arena.order`


def state_bytes(groups: int) -> int:
    """Bytes of one slot of one layer, row and KV head, beside its key and value; `groups` is G."""
    bytes_of, numbers = {"exact": 4, "int32": 4, "bool": 1}, {"": 1, "group": groups}
    own = [state for state in STATES if state.dtype != "kv"]
    return ORDER_BYTES + sum(bytes_of[state.dtype] * numbers[state.trailing] for state in own)
