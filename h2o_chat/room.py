"""Whether the slots of a layer can be made at all, asked before the system is.

A system lends more memory than it has: `zeros` of a terabyte may succeed, and the process is killed later.
"""

from typing import TYPE_CHECKING

import psutil

from h2o_chat.errors import BudgetError
from h2o_chat.memory import STATE_BYTES

if TYPE_CHECKING:
    from torch import Tensor


def require_room(rows: int, heads: int, slots: int, size: int, like: "Tensor") -> None:
    """Refuses slots [rows, heads, slots] for which there is no memory.

    Args:
        slots: budget + 1.
        size: components of a head.
        like: keys, of whose precision and on whose device they would be.

    Raises:
        BudgetError: says what they need and what is free.
    """
    # Quantised slots hold as many keys as they come, for a moment.
    needed = rows * heads * slots * (2 * size * like.element_size() + STATE_BYTES)
    if like.device.type == "cpu":
        free = int(psutil.virtual_memory().available)
    elif like.device.type == "cuda":
        import torch

        free = torch.cuda.mem_get_info(like.device)[0]
    else:
        return
    if needed > free:
        one = needed // slots
        raise BudgetError(
            f"A budget of {slots - 1:,} slots needs {needed / 1e9:,.1f} GB for one layer alone, and"
            f" {like.device} has {free / 1e9:,.1f} GB free.",
            f"A slot takes {one:,} bytes in every layer: a budget of {free // (2 * one):,} fills half of that"
            " with one layer.",
        )
