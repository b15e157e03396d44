"""Properties of devices: whether they compute asynchronously, and their free memory."""

from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import torch


def free_bytes(device: "torch.device") -> int:
    """Free bytes of a CPU's or GPU's memory."""
    if device.type != "cuda":
        return int(psutil.virtual_memory().available)
    import torch

    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept  # memory that torch has reserved but not used


def reads_free(device: "torch.device") -> bool:
    """True where reading a tensor does not synchronise: on a CPU everything before is already computed."""
    return device.type == "cpu"
