"""Memory that was freed goes back to the system, so that the server takes what was computed.

glibc maps large blocks one by one, but each that is freed raises the size from which on it does so, up to 32
MiB. Then rows and snapshots lie in its heap, among small blocks, and leave holes there. With 64 snapshots of
the bundled model the server took 9% more than was computed.

Smaller blocks stay in the heap, and holes with them: a server of 26 MB (budget 64, 80 snapshots) took 7 MB
more. So every few seconds whole pages of holes are given back (`trim`): 1 to 3 MB, in .4 ms. What stays is
computed (`rows.WORKING_BYTES`).

New pages cost time: 7% of the processor time of answers of 45 tokens by the bundled model, whose weights are
small beside a snapshot; less with larger models.
"""

import ctypes
import sys

M_MMAP_THRESHOLD = -3
"""Of <malloc.h>."""
MAPPED_BYTES = 512 << 10
"""Blocks of this size and more are mapped: the bundled model's keys of a row, not its logits of a step."""


def give_back() -> None:
    """Large blocks that are freed go back to the system from here on; without glibc: nothing."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none, and raises no limit
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)


def trim() -> None:
    """Pages of the heap in which nothing lies go back to the system now; without glibc: nothing."""
    if (
        sys.platform == "linux"
        and (malloc_trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None
    ):
        malloc_trim(0)
