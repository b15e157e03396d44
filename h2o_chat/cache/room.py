"""Whether the slots of a layer can be made at all, asked before the system is.

A system lends more memory than it has: `zeros` of a terabyte may succeed, and the process is killed later.
"""

from typing import TYPE_CHECKING

import psutil
import torch

from h2o_chat.base.errors import BudgetError
from h2o_chat.cache.state import state_bytes

if TYPE_CHECKING:
    from h2o_chat.cache.arena import Shape


def require_room(shape: "Shape", slots: int) -> None:
    """
    Raises:
        BudgetError: there is no memory for so many slots of one layer; says what they need and what is free.
    """
    # Quantised slots hold as many keys as they come, for a moment.
    kv_bytes = (shape.key + shape.value) * shape.dtype.itemsize
    slot_bytes = shape.rows * shape.heads * (kv_bytes + state_bytes(shape.groups))
    if shape.device.type == "cpu":
        free = int(psutil.virtual_memory().available)
    elif shape.device.type == "cuda":
        free = torch.cuda.mem_get_info(shape.device)[0]
    else:
        return
    if slots * slot_bytes > free:
        raise BudgetError(
            f"A budget of {slots - 1:,} slots needs {slots * slot_bytes / 1e9:,.1f} GB for one layer alone,"
            f" and {shape.device} has {free / 1e9:,.1f} GB free.",
            f"A slot takes {slot_bytes:,} bytes in every layer: a budget of {free // (2 * slot_bytes):,}"
            " fills half of that with one layer.",
        )
