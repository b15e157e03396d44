"""Returns freed memory to the system, so that the server takes no more than was computed.

glibc maps large blocks one by one, but each freed one raises the size from which on it does so, up to 32 MiB.
Rows and snapshots then lie in its heap, among small blocks, and leave holes. With 64 snapshots of the bundled
model the server took 9% more than computed.

Smaller blocks stay in the heap with holes between them: a server of 26 MB (budget 64, 80 snapshots) took 7 MB
more. `trim` therefore returns unused whole pages every few seconds: 1 to 3 MB, in .4 ms. The rest is part of
the computed bytes (`WORKING_BYTES`).

New pages take 7% of the processor time of answers of 45 tokens by the bundled model, whose weights are small
beside a snapshot; less with larger models.
"""

import ctypes
import sys

M_MMAP_THRESHOLD = -3
"""A constant of <malloc.h>."""
MAPPED_BYTES = 512 << 10
"""Smallest mapped block: the bundled model's keys of a row are mapped, the logits of a step are not."""


def give_back() -> None:
    """Makes glibc return freed large blocks to the system from now on; does nothing without glibc."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl does not have it, and does not need it
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)


def trim() -> None:
    """Returns unused pages of the heap to the system; does nothing without glibc."""
    if (
        sys.platform == "linux"
        and (malloc_trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None
    ):
        malloc_trim(0)
