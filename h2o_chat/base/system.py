"""Differences between Windows and other systems: signals, open files, locks, reads at an offset.

The code for Windows follows Python's documentation and was never run there; a test removes the functions
that Windows lacks (tests/cli/test_windows.py).
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

if sys.platform != "win32":
    import fcntl

ENDING = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))
"""Signals that end a program in order. Windows has no SIGHUP."""

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
"""Ends a process at once; on Windows `os.kill` does so with any signal."""

SAFELY = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"))
"""Flags of `os.open`, where the system has them: follow no link, close in children, no text mode."""

NO_WAITING = getattr(os, "O_NONBLOCK", 0)  # of `os.open`: opening a pipe does not wait for its other end

MOVES_OPEN_FILES = sys.platform != "win32"  # a file that is open or mapped can be renamed and removed

PASSES_SOCKETS = sys.platform != "win32"
"""Whether a child can inherit an open socket (`pass_fds`). If not, the engine runs in the screen's
process."""

HAS_OWNERS = hasattr(os, "geteuid")  # a file's mode says who may write it; not on Windows

RANKS = int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1
"""Number of processes that torchrun has started for one model; 1 without it."""


@contextmanager
def handling(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Handles the signals of `ENDING`; those that are ignored stay so (nohup, a job in the background)."""
    before = {number: signal.getsignal(number) for number in ENDING}
    for number, was in before.items():
        if was is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)


_FAR_BYTE = 2**31 - 2  # behind the end of any file: Windows forbids others to read locked bytes


def lock(descriptor: int, *, shared: bool = False, wait: bool = False) -> None:
    """Locks a file until its descriptor is closed, or its process ends. On Windows no lock is shared.

    Raises:
        BlockingIOError: somebody else holds it.
        OSError: it cannot be locked.
    """
    if sys.platform == "win32":
        _lock_far_byte(descriptor, wait)
    else:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)


def _lock_far_byte(descriptor: int, wait: bool) -> None:
    msvcrt: Any = import_module("msvcrt")  # Windows alone has it

    while True:
        before = os.lseek(descriptor, 0, os.SEEK_CUR)
        try:
            os.lseek(descriptor, _FAR_BYTE, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            return
        except OSError as error:
            if not wait:
                raise BlockingIOError(error.errno, error.strerror) from error
            time.sleep(0.01)
        finally:
            os.lseek(descriptor, before, os.SEEK_SET)


def read_at(descriptor: int, count: int, offset: int) -> bytes:
    """Reads up to `count` bytes at `offset`; may move the file's own position."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, count, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, count)
