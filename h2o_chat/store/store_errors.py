"""Turns errors of SQLite and the system into errors that name the file and what to do."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from h2o_chat.base.errors import DiskError, StoreBusyError, StoreError


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Makes a StoreError of errors inside; `StoreBusyError` or `DiskError` if a later try may succeed."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise  # wrong use of a connection is our own bug
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        what, hint = _WORDS.get(code, ("{error}", ""))
        kind = StoreBusyError if code in _BUSY else DiskError if code in _DISK else StoreError
        raise kind(f"{path}: {what.format(error=error)}.", hint.format(path=path)) from error
    except UnicodeDecodeError as error:  # SQLite's message may quote bytes of a damaged file
        what, hint = _WORDS[sqlite3.SQLITE_CORRUPT]
        raise StoreError(f"{path}: {what.format(error=error)}.", hint.format(path=path)) from error
    except OSError as error:
        raise DiskError(f"{error.filename or path}: {error.strerror}.", _PERMISSIONS) from error


_PERMISSIONS = "Check the permissions of the folder, or choose another with --data or H2O_CHAT_DATA."
_DAMAGED = (
    "Nothing was changed. Move it away to begin a new one; sqlite3 '{path}' .recover prints what can be read."
)
_WORDS = {
    sqlite3.SQLITE_FULL: ("the disk is full", "Free some space: what was stored before is safe."),
    sqlite3.SQLITE_IOERR: (
        "the disk failed ({error})",
        "Look for free space, quotas and the disk's health: what was stored before is safe.",
    ),
    sqlite3.SQLITE_READONLY: ("it cannot be written ({error})", _PERMISSIONS),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened ({error})", _PERMISSIONS),
    sqlite3.SQLITE_PERM: ("it cannot be opened ({error})", _PERMISSIONS),
    sqlite3.SQLITE_BUSY: ("another process keeps it busy", "Try again."),
    sqlite3.SQLITE_NOTADB: ("this is not a database of h2o-chat ({error})", _DAMAGED),
    sqlite3.SQLITE_CORRUPT: ("the database is damaged ({error})", _DAMAGED),
}
"""(message, hint) by primary result code."""
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_DISK = (
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY),
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM),
)
"""Primary result codes after which writing is tried again. All others are final."""
