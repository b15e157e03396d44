"""Properties of devices: whether they compute asynchronously, and their free memory."""

import time
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


def upload_bytes_per_s(device: "torch.device") -> float:
    """Measures how fast main memory is copied to a device, by some milliseconds of it."""
    import torch

    held = torch.ones(1 << 26, dtype=torch.uint8, pin_memory=device.type == "cuda")
    there = held.to(device, copy=True)
    began = time.perf_counter()
    for _ in range(3):
        there.copy_(held)
    there[-1].item()  # waits
    return 3 * held.nbytes / (time.perf_counter() - began)


def reads_free(device: "torch.device") -> bool:
    """True where reading a tensor does not synchronise: on a CPU everything before is already computed."""
    return device.type == "cpu"
