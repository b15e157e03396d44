"""Whether what stands at the paths of the database is what is open.

SQLite goes on with files that somebody has removed or moved, and may answer from its cache while the file is
written over. Device and inode tell the first: while a file is open no other one gets its inode. Size and time
of the last change tell the second: nobody but SQLite may change the file, and other processes do so seldom.
"""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from h2o_chat.base.errors import StoreLostError


class Standing:
    """The files of an open database.

    Args:
        path: of the database, which is open and was read.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._log = path, path.with_name(path.name + "-wal")
        files = [path, self._log, path.with_name(path.name + "-shm")]
        self._files = {file: found for file in files if (found := _which(file)) is not None}
        self._size_and_time = _size_and_time(path)

    def left(self) -> None:
        """Notes how this connection leaves the file, into which it has just written the log."""
        with suppress(OSError):  # removed within this moment: the next look tells
            self._size_and_time = _size_and_time(self._path)

    def log_bytes(self) -> int:
        """Size of the log; 0 where there is none."""
        try:
            return os.stat(self._log).st_size
        except OSError:
            return 0

    def require(self) -> None:
        """
        Raises:
            StoreLostError: a file was removed, moved, replaced or emptied.
            OSError: that cannot be seen.
        """
        for file, opened in self._files.items():
            if (now := _which(file)) != opened:
                what = "removed or moved away" if now is None else "replaced by another file"
                raise lost(f"{file} was {what} while it was open.")
        if not os.stat(self._path).st_size:
            raise lost(f"{self._path} was emptied while it was open.")

    def require_whole(self) -> None:
        """
        Raises:
            StoreLostError: as from `require`, or it was written over.
            OSError: that cannot be seen.
        """
        self.require()
        if (now := _size_and_time(self._path)) == self._size_and_time:
            return
        # Through a connection of its own: the other one may answer from its cache.
        where = self._path.absolute().as_uri() + "?mode=rw"
        with closing(sqlite3.connect(where, uri=True)) as fresh:
            try:
                [[found]] = fresh.execute("PRAGMA quick_check (1)").fetchall()
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                    raise
                found = str(error)
        if found != "ok":
            raise lost(f"{self._path} was written over while it was open ({' '.join(found.split())}).")
        self._size_and_time = now


def lost(what: str) -> StoreLostError:
    """The error for a store that is not what was opened."""
    return StoreLostError(what, "What was stored there before is as safe as whoever did that has left it.")


def _which(file: Path) -> tuple[int, int] | None:
    """Device and inode; None where there is no file."""
    try:
        about = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return about.st_dev, about.st_ino


def _size_and_time(file: Path) -> tuple[int, int]:
    about = os.stat(file)
    return about.st_size, about.st_mtime_ns
