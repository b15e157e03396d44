"""What the program asks of a device: when a value may be read there, and what is free."""

from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    import torch


def reads_free(device: "torch.device") -> bool:
    """Whether to read a value means to wait for nothing: on a CPU all that was asked before is done."""
    return device.type == "cpu"


def free_bytes(device: "torch.device") -> int:
    """Bytes that are free on a GPU, with those that torch keeps to use again; else those of the system."""
    if device.type != "cuda":
        return int(psutil.virtual_memory().available)
    import torch

    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept
