"""Memory that was freed goes back to the system, so that the server takes what was computed.

glibc maps blocks of 128 KiB and more one by one, but each that is freed raises this limit, up to 32 MiB.
From then on rows and snapshots lie in its heap, among small blocks, and leave holes there. With 64 snapshots
of the bundled model the server took 9% more than was computed.
"""

import ctypes
import sys

M_MMAP_THRESHOLD = -3
"""Of <malloc.h>."""
MAPPED_BYTES = 128 << 10
"""Blocks of this size and more are mapped; what glibc begins with."""


def give_back() -> None:
    """Blocks that are freed go back to the system from here on; where the C library is not glibc, nothing."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none, and raises no limit
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
