"""Notices that the files of an open database were removed, moved, replaced or overwritten.

SQLite goes on with files that were removed or moved, and may answer from its cache while the file is
overwritten. Device and inode show the first: while a file is open, no other one gets its inode. Size and time
of the last change show the second: only SQLite may change the file, and other processes rarely do.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from h2o_chat.base.errors import StoreLostError


class OpenFiles:
    """The files of a database that is open and was read, as they were then."""

    def __init__(self, path: Path) -> None:
        self._path = os.path.abspath(path)
        self._log = f"{self._path}-wal"
        files = (self._path, self._log, f"{self._path}-shm")
        self._opened = {file: about for file in files if (about := _at(file)) is not None}
        self._size_and_time = _size_and_time(os.stat(self._path))
        self.has_log = self._log in self._opened
        """Whether there is a log; if not, each transaction is written into the database at once."""

    def left(self) -> None:
        """Notes the file's size and time after this connection has written the log into it."""
        about = _at(self._path)
        if about is not None:  # if it was removed just now, the next check notices
            self._size_and_time = _size_and_time(about)

    def log_bytes(self) -> int:
        """Size of the log; 0 if there is none."""
        about = _at(self._log)
        return about.st_size if about else 0

    def require(self, *, whole: bool = False) -> None:
        """
        Args:
            whole: also check the contents, if another process has changed the file.

        Raises:
            StoreLostError: a file was removed, moved, replaced, emptied or (`whole`) overwritten.
            OSError: a path cannot be looked up.
        """
        now = self._size_and_time
        for file, opened in self._opened.items():
            about = _at(file)
            if about is None or not os.path.samestat(about, opened):
                what = "replaced by another file" if about else "removed or moved away"
                raise lost(f"{file} was {what} while it was open.")
            if file == self._path:
                now = _size_and_time(about)
        if not now[0]:
            raise lost(f"{self._path} was emptied while it was open.")
        if whole and now != self._size_and_time:
            self._require_sound()
            self._size_and_time = now

    def _require_sound(self) -> None:
        """Checks that the database is sound (0.7 ms a megabyte), else raises StoreLostError."""
        # A new connection, since the open one may answer from its cache.
        where = Path(self._path).as_uri() + "?mode=rw"
        with closing(sqlite3.connect(where, uri=True)) as fresh:
            try:
                [[found]] = fresh.execute("PRAGMA quick_check (1)").fetchall()
            except sqlite3.DatabaseError as error:
                if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                    raise
                found = str(error)
        if found != "ok":
            raise lost(f"{self._path} was written over while it was open ({' '.join(found.split())}).")


def lost(what: str) -> StoreLostError:
    """The error for a store that is not the one that was opened."""
    hint = (
        "Find out what did that before you go on: another program, a synchronised folder, a backup put back."
    )
    return StoreLostError(what, hint)


def _at(file: str) -> os.stat_result | None:
    try:
        return os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _size_and_time(about: os.stat_result) -> tuple[int, int]:
    """Bytes, and nanoseconds since 1970 of the last change."""
    return about.st_size, about.st_mtime_ns
