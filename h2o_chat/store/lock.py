"""A lock file that the kernel releases when its holder dies, however it dies."""

import contextlib
import os
import time
from pathlib import Path

from h2o_chat.base.private_files import open_own, stands_at
from h2o_chat.base.system import SAFELY, lock, read_at, write_at
from h2o_chat.store.open_files import lost

PATIENCE_S = 0.25
"""Seconds of retrying: `held` takes the lock for microseconds, and must not refuse a writer."""


class Held(Exception):
    """Another holder has the lock; `pid` is its process, None if unknown."""

    def __init__(self, pid: int | None) -> None:
        super().__init__(pid)
        self.pid = pid


class Lock:
    """Holds a file from creation to `release`.

    Args:
        path: None: nothing is locked, as no other process can reach the store (in memory).

    Raises:
        Held: another process holds it, or another `Lock` of this one.
        OSError: the file cannot be made or locked.
        StoreError: it is a symbolic link.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._descriptor = -1
        if path is None:
            return
        self._descriptor = _take(path)
        with contextlib.suppress(OSError):  # a full disk: it is locked, without our process number in it
            os.ftruncate(self._descriptor, 0)
            write_at(self._descriptor, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Releases the lock; may be called again."""
        if self._path is not None and self._descriptor >= 0:
            with contextlib.suppress(OSError):
                if stands_at(self._descriptor, self._path):
                    self._path.unlink()  # while it is held, so that nobody else's is removed
            os.close(self._descriptor)
            self._descriptor = -1

    def require(self) -> None:
        """
        Raises:
            StoreLostError: the locked file was removed or moved: another process may hold a new one.
            OSError: the path cannot be looked up.
        """
        if self._path is not None and not stands_at(self._descriptor, self._path):
            raise lost(f"{self._path} was removed while it was held: another process may write there, too.")


def held(path: Path) -> bool:
    """Whether a living process holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | SAFELY)
    except OSError:
        return False
    try:
        lock(descriptor, shared=True)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _take(path: Path) -> int:
    give_up = time.monotonic() + PATIENCE_S
    while True:
        descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            lock(descriptor)
            if stands_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            if time.monotonic() > give_up:
                pid = read_at(descriptor, 32, 0).strip()
                os.close(descriptor)
                raise Held(int(pid) if pid.isdigit() else None) from None
            time.sleep(0.01)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its holder has just removed the file: try again with a new one
