"""What is known of every slot, in one table. No torch.

Allocation, emptying, snapshots, saved files and their checks, the choice of rows and byte counts all follow
from it, so a new state is one line here.
"""

from dataclasses import dataclass
from typing import Literal

Trailing = Literal["", "key", "value", "group"]


@dataclass(frozen=True)
class State:
    """One number, flag or row of numbers that every slot has: a tensor [L, R, H, S, ...]."""

    name: str
    trailing: Trailing
    """What follows [L, R, H, S]: nothing, D of keys or values, G query heads."""
    dtype: Literal["kv", "exact", "int32", "bool"]
    """kv: as the model computes keys and values, or bytes; exact: fp32, and fp64 where the model has it."""
    empty: float = 0
    """What an empty slot holds."""
    saved: bool = True
    """False: it follows from the others and is made anew when a snapshot is restored."""


STATES = (
    State(
        "keys", "key", "kv"
    ),  # turned to their rotation index (`distance.py`); in bytes they are not turned
    State("values", "value", "kv"),
    State("positions", "", "int32", empty=-1),  # in the conversation; -1 = empty
    State(
        "score", "group", "exact"
    ),  # attention received from each query head, forgotten at the policy's rate
    State("recent", "", "exact"),  # share of its KV head's attention, a mean over about the last 32 queries
    State("distinctness", "", "exact"),  # minus the cosine of its key to the mean of the kept keys
    State("novelty", "", "exact"),  # minus the cosine of its key to the nearest other one kept
    State("prompt", "", "bool"),  # read in a prompt, not generated
    State("protected", "", "bool"),  # sink, system prompt or pinned
    State("clamped", "", "bool"),  # every query meets its key at one fixed distance (`distance.py`)
    State("hidden", "", "bool", empty=1, saved=False),  # no query sees it
)

_BYTES = {"exact": 4, "int32": 4, "bool": 1}
ORDER_BYTES = 4
"""Of each slot's place in the order of writing."""


def state_bytes(groups: int) -> int:
    """Bytes of one slot of one layer, row and KV head, beside its key and value.

    Args:
        groups: G, query heads per KV head.
    """
    each = {"": 1, "group": groups}
    return ORDER_BYTES + sum(
        _BYTES[state.dtype] * each[state.trailing] for state in STATES if state.dtype != "kv"
    )
