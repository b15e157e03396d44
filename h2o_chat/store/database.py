"""One SQLite file: private to its owner, migrated to the newest schema, with readable errors.

One connection serves all threads, one transaction at a time: a worker writes tokens while the screen reads,
and nobody sees half a transaction. Commits survive the death of the process at any moment; a power cut can
lose the last ones but never damages the file (WAL with synchronous=NORMAL).
"""

import contextlib
import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import RLock
from typing import Any

from h2o_chat.base.errors import StoreError, StoreLostError
from h2o_chat.base.private_files import no_link
from h2o_chat.base.system import SAFELY
from h2o_chat.store.open_files import OpenFiles
from h2o_chat.store.records import MIGRATIONS
from h2o_chat.store.store_errors import explained

Rows = list[tuple[Any, ...]]

Step = Callable[[sqlite3.Connection], object]  # a write that is never split over two transactions

WAIT_S = 5.0  # longest wait for another process's transaction; ours take milliseconds
LONG_WAIT_S = 180.0  # longest wait of work that is not simply repeated: an import, a removal
SHORT_S = 0.03  # a transaction takes no further step after this time, so that others can write
PAUSE_S = 0.02  # pause between two transactions of one job, so that others can write
LOG_BYTES = 4 << 20  # size from which on the log is written into the database, which takes some milliseconds
MERGED_PAGES = 64  # pages of the index of words merged at a time: some milliseconds
POLL_S = 0.002  # pause between two looks whether another process is still writing


class Database:
    """A connection that any thread may use.

    Args:
        path: the file; created, readable by its owner alone, if there is none. None: a database in memory.

    Raises:
        StoreError: it cannot be opened, is no database, is damaged, or was written by a newer version. All
            methods raise it if the file cannot be read or written, and `StoreLostError` if the file at the
            path is no longer the one that is open.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path or Path(_MEMORY)
        self._lock = RLock()
        self._lost: StoreLostError | None = None
        self._empty_from_bytes = LOG_BYTES
        with explained(self.path):
            self._connection = _open(path) if path else _connect(_MEMORY)
            self._open_files = OpenFiles(path) if path else None

    def rows(self, sql: str, *values: Any) -> Rows:
        with self._lock, explained(self.path):
            self.require()
            return self._connection.execute(sql, values).fetchall()

    def require(self, *, whole: bool = False) -> None:
        """Raises StoreLostError or another StoreError, see `OpenFiles.require`."""
        with self._lock, explained(self.path):
            if self._lost is None and self._open_files:
                try:
                    self._open_files.require(whole=whole)
                except StoreLostError as error:
                    self._lost = error
            if self._lost is not None:
                raise self._lost

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction for several queries that see the same state."""
        self.require()
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self, wait_s: float = WAIT_S) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is on disk when the block ends, or nothing if it raises.

        Args:
            wait_s: longest wait for another process that writes.

        Raises:
            StoreError: the file cannot be written; `StoreBusyError` or `DiskError` if a later try may
                succeed.
        """
        self.require(whole=True)
        with self._transaction("BEGIN IMMEDIATE", wait_s) as connection:
            yield connection
        self._empty_long_log()

    def write(self, steps: deque[Any], wait_s: float, held: Callable[[], None] = lambda: None) -> None:
        """Runs steps (each a `Step`) in order, in short transactions; committed ones leave the deque.

        Args:
            held: called in each transaction; raises if the steps may no longer be run.

        Raises as `writing`; the steps that are left were not run.
        """
        while steps:
            done = 0
            with self.writing(wait_s) as connection:
                held()
                end = time.monotonic() + SHORT_S
                for step in steps:
                    step(connection)
                    done += 1
                    if time.monotonic() > end:
                        break
            for _ in range(done):
                steps.popleft()
            if steps:
                time.sleep(PAUSE_S)

    def forget_removed(self) -> None:
        """Removes deleted text from the files: from the index of words, unused parts of pages, and the log.

        The index is merged in short transactions. Then the file is rewritten, one second for each 100 MB,
        during which others wait. If a reader in another process takes too long, the log is emptied later.
        """
        # FTS5 keeps deleted words until its whole index is merged: -n begins that, n continues it.
        pages, merging = -MERGED_PAGES, True
        while merging:
            with self.writing(LONG_WAIT_S) as connection:
                end = time.monotonic() + SHORT_S
                while merging and time.monotonic() < end:
                    before = connection.total_changes
                    connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
                    merging = connection.total_changes - before >= 2  # see the manual of FTS5
                    pages = MERGED_PAGES
            time.sleep(PAUSE_S)
        if self._open_files is None:
            return
        # Deleted rows are overwritten, but a row that was once moved to another page left a copy behind.
        # A new connection lets our other threads read meanwhile.
        with explained(self.path), contextlib.closing(_connect(str(self.path))) as alone:
            alone.execute(f"PRAGMA busy_timeout = {1000 * LONG_WAIT_S:.0f}")
            alone.execute("VACUUM")
        give_up = time.monotonic() + WAIT_S
        while self.empty_log() and time.monotonic() < give_up:
            time.sleep(PAUSE_S)

    def _empty_long_log(self) -> None:
        """Empties a long log. SQLite's own `wal_autocheckpoint` would look like a write of another process.

        A failure does no harm: commits stay in the log, and the next transaction raises the reason.
        """
        if self._open_files is None:
            return
        if not self._open_files.has_log:
            self._open_files.left()
        elif self._open_files.log_bytes() >= self._empty_from_bytes:
            with contextlib.suppress(StoreError):
                self.empty_log()
            self._empty_from_bytes = self._open_files.log_bytes() + LOG_BYTES

    def empty_log(self) -> bool:
        """Writes the log into the database; returns whether another process prevented that.

        Others can write during most of it.
        """
        if self._open_files is None:
            return False
        with self._lock, explained(self.path):
            self.require(whole=True)
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            self._connection.execute("PRAGMA busy_timeout = 0")
            try:
                [[busy, *_]] = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                return bool(busy)
            finally:
                self._connection.execute(f"PRAGMA busy_timeout = {1000 * WAIT_S:.0f}")
                self._open_files.left()

    def close(self) -> None:
        with self._lock:
            self._open_files = None
            self._connection.close()

    @contextlib.contextmanager
    def _transaction(self, begin: str, wait_s: float = WAIT_S) -> Iterator[sqlite3.Connection]:
        with explained(self.path), self._begun(begin, wait_s), _whole(self._connection):
            yield self._connection

    @contextlib.contextmanager
    def _begun(self, begin: str, wait_s: float) -> Iterator[None]:
        """Begins a transaction that excludes other threads; they may go on while it waits."""
        give_up = time.monotonic() + wait_s
        while True:
            with self._lock:
                if self._begin(begin, last=time.monotonic() >= give_up):
                    yield
                    return
            time.sleep(POLL_S)

    def _begin(self, begin: str, last: bool) -> bool:
        """Tries to begin a transaction; returns False if another process is writing."""
        # SQLite itself tries every 0.1 s, and would miss the pauses of a long job.
        self._connection.execute("PRAGMA busy_timeout = 0")
        try:
            self._connection.execute(begin)
        except sqlite3.OperationalError as error:
            if last or error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            return False
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {1000 * WAIT_S:.0f}")
        return True


_MEMORY = ":memory:"


@contextlib.contextmanager
def _whole(connection: sqlite3.Connection) -> Iterator[None]:
    """Commits the transaction that was begun, or rolls it back."""
    with connection:
        yield
        connection.execute("COMMIT")  # raises if it has ended meanwhile, which `commit()` does not


def _open(path: Path) -> sqlite3.Connection:
    _create(path)
    try:
        return _connect(str(path))
    except sqlite3.OperationalError:
        # In a read-only folder WAL cannot create its index. Without a log, none is needed.
        log = path.with_name(path.name + "-wal")
        if os.access(path.parent, os.W_OK) or (log.exists() and log.stat().st_size):
            raise
        return _connect(path.absolute().as_uri() + "?immutable=1")


def _create(path: Path) -> None:
    """Creates an empty file for its owner alone; SQLite gives its log the same permissions.

    An existing file is never opened here: closing it would drop all locks that this process has on it
    (POSIX), including those of another connection, and writes of others would be lost.
    """
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        no_link(path.with_name(name))
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | SAFELY, 0o600))
    except FileExistsError:
        if path.stat().st_mode & 0o077 and os.access(path, os.W_OK):  # copied here by hand, for example
            path.chmod(0o600)
    except OSError:
        if not path.is_file():
            raise  # an existing file may still be readable


def _connect(where: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        where,
        timeout=WAIT_S,
        isolation_level=None,  # we begin transactions ourselves
        check_same_thread=False,
        uri=where.startswith("file:"),
    )
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        _log_ahead(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")  # deleted rows are overwritten
        connection.execute(f"PRAGMA journal_size_limit = {16 << 20}")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # see `Database._empty_long_log`
        _migrate(connection, where)
    except BaseException:
        connection.close()
        raise
    return connection


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Switches a new file to WAL, waiting for other processes, which SQLite itself does not do here.

    An immutable file stays as it is, without an error.
    """
    give_up = time.monotonic() + WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def _migrate(connection: sqlite3.Connection, where: str) -> None:
    """Applies the missing migrations, all or none."""
    newest = len(MIGRATIONS)
    if _version(connection) < newest:
        connection.execute("BEGIN IMMEDIATE")
        with _whole(connection):
            for script in MIGRATIONS[_version(connection) :]:  # another process may have migrated it
                for statement in _statements(script):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {max(newest, _version(connection))}")
    version = _version(connection)
    if version > newest:
        raise StoreError(
            f"{where} was written by a newer h2o-chat: it has version {version}, this one knows {newest}.",
            "Update h2o-chat, or choose another folder with --data or H2O_CHAT_DATA.",
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _statements(script: str) -> Iterator[str]:
    """The statements of a script. (`executescript` would commit first.)"""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if statement.strip() and sqlite3.complete_statement(statement):
            yield statement
            statement = ""
