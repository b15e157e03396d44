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
    """Refuses slots for which there is no memory.

    Args:
        shape: of the layer.
        slots: budget + 1.

    Raises:
        BudgetError: says what they need and what is free.
    """
    # Quantised slots hold as many keys as they come, for a moment.
    each = (shape.key + shape.value) * shape.dtype.itemsize + state_bytes(shape.groups)
    needed = shape.rows * shape.heads * slots * each
    if shape.device.type == "cpu":
        free = int(psutil.virtual_memory().available)
    elif shape.device.type == "cuda":
        free = torch.cuda.mem_get_info(shape.device)[0]
    else:
        return
    if needed > free:
        one = needed // slots
        raise BudgetError(
            f"A budget of {slots - 1:,} slots needs {needed / 1e9:,.1f} GB for one layer alone, and"
            f" {shape.device} has {free / 1e9:,.1f} GB free.",
            f"A slot takes {one:,} bytes in every layer: a budget of {free // (2 * one):,} fills half of that"
            " with one layer.",
        )
