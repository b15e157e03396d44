"""Locks of conversations, and their saved caches, in a data folder."""

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from h2o_chat.base.private_files import no_link, open_own, own_folder, stands_at
from h2o_chat.base.system import SAFELY, lock
from h2o_chat.store.open_files import lost
from h2o_chat.store.store_errors import explained

PATIENCE_S = 0.25  # seconds of retrying: `held` takes the lock for microseconds, and must not refuse a writer


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
        with suppress(OSError):  # a full disk: it is locked, without our process number in it
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, b"%d\n" % os.getpid())

    def release(self) -> None:
        """Releases the lock; may be called again."""
        if self._path is not None and self._descriptor >= 0:
            with suppress(OSError):
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
                pid = os.read(descriptor, 32).strip()
                os.close(descriptor)
                raise Held(int(pid) if pid.isdigit() else None) from None
            time.sleep(0.01)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its holder has just removed the file: try again with a new one


class DataFolder:
    """Locks and saved caches in one data folder.

    Args:
        folder: None: the store is in memory: nothing is locked and no cache is saved.

    Raises:
        StoreError: from methods that create or remove files: the disk does not allow it.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def lock_file(self, conversation: str) -> Path | None:
        return self._folder / "locks" / conversation if self._folder else None

    def is_held(self, conversation: str) -> bool:
        """Whether a process holds the conversation; in memory that is always this one."""
        path = self.lock_file(conversation)
        return path is None or held(path)

    def cache_folder(self, conversation: str) -> Path | None:
        return self._folder / "caches" / conversation if self._folder else None

    def lock(self, conversation: str) -> Lock:
        if (path := self.lock_file(conversation)) is None:
            return Lock(None)
        with explained(path):
            no_link(path.parent)
            own_folder(path.parent)
            return Lock(path)

    def made_cache_folder(self, conversation: str) -> Path | None:
        """The folder of saved caches, created if needed; None in memory."""
        if (folder := self.cache_folder(conversation)) is None:
            return None
        with explained(folder):
            for one in (folder.parent, folder):
                no_link(one)
                own_folder(one)
        return folder

    def remove_caches(self, conversation: str) -> None:
        if (folder := self.cache_folder(conversation)) and folder.exists():
            with explained(folder):
                shutil.rmtree(folder)

    def removable_caches(self, others: Sequence[str], ours: str) -> Iterator[Path]:
        """Saved caches that may be removed, in this order: of unknown conversations, of `others`, of `ours`.

        Conversations that another process holds are left out.
        """
        there = {folder.name for folder in self._folder.glob("caches/*")} if self._folder else set()
        for conversation in [*sorted(there - {*others, ours}), *others, ours]:
            if (folder := self.cache_folder(conversation)) and (
                conversation == ours or not self.is_held(conversation)
            ):
                yield from saved_caches(folder)


def saved_caches_bytes(folder: Path) -> int:
    found = 0
    for file in folder.glob("caches/*/*"):
        with suppress(FileNotFoundError):  # removed by another process
            found += file.stat().st_size
    return found


def saved_caches(folder: Path) -> list[Path]:
    """Saved caches of one conversation, by number of their message: unlike clocks, it only increases."""
    files = [file for file in folder.glob("*.safetensors") if file.stem.isdecimal()]
    return sorted(files, key=lambda file: int(file.stem))
