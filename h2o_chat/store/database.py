"""One SQLite file: opened privately, brought up to date, and its errors said in words.

One connection serves all threads, one after the other (a lock is held for each transaction): a worker writes
tokens while the screen reads, nobody sees half a transaction, and there is one thing to close. What SQLite
commits survives the death of the process at any moment; only a power cut can take the last commits, and
never the file (WAL with synchronous=NORMAL).
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
from h2o_chat.base.own import no_link
from h2o_chat.base.system import SAFELY
from h2o_chat.store.explained import explained
from h2o_chat.store.schema import MIGRATIONS
from h2o_chat.store.standing import Standing

Rows = list[tuple[Any, ...]]

Step = Callable[[sqlite3.Connection], object]
"""A part of what is written, which is never divided between two transactions."""

WAIT_S = 5.0
"""How long a transaction waits for that of another process; ours take milliseconds."""
LONG_WAIT_S = 180.0
"""How long something waits that cannot simply be done again: words that were said, an import."""
SHORT_S = 0.03
"""A transaction takes no further step after this time: others write too."""
PAUSE_S = 0.02
"""Between two transactions of one job, so that others find the moment."""
LOG_BYTES = 4 << 20
"""The log grows to so many before it is written into the database: that takes some milliseconds."""
MERGED_PAGES = 64
"""Of the index of words at a time: some milliseconds."""
POLL_S = 0.002
"""Between two looks whether another process is still writing."""


class Database:
    """A connection that any thread may use.

    Args:
        path: the file; it is created, readable by its owner alone, where there is none. None: a database in
            memory, which ends with its process.

    Raises:
        StoreError: it cannot be opened, is no database, is damaged, or was written by a newer version. From
            every method `StoreLostError`: the file at the path is no longer the one that is open.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path or Path(_MEMORY)
        self._lock = RLock()
        self._lost: StoreLostError | None = None
        self._empty_from_bytes = LOG_BYTES
        with explained(self.path):
            self._connection = _open(path) if path else _connect(_MEMORY)
            self._standing = Standing(path) if path else None

    def rows(self, sql: str, *values: Any) -> Rows:
        """All rows of a query.

        Raises:
            StoreError: the file cannot be read.
        """
        with self._lock, explained(self.path):
            self.require()
            return self._connection.execute(sql, values).fetchall()

    def require(self, *, whole: bool = False) -> None:
        """
        Args:
            whole: whether it is looked at as a whole, too, where somebody else has changed it.

        Raises:
            StoreLostError: what stands at the path is not what is open.
            StoreError: that cannot be seen.
        """
        with self._lock, explained(self.path):
            if self._lost is None and self._standing:
                try:
                    self._standing.require(whole=whole)
                except StoreLostError as error:
                    self._lost = error
            if self._lost is not None:
                raise self._lost

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Several queries that see the same state.

        Raises:
            StoreError: the file cannot be read.
        """
        self.require()
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self, wait_s: float = WAIT_S) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is on disk when the block ends, or nothing when it raises.

        Args:
            wait_s: how long another process that writes is waited for.

        Raises:
            StoreError: the file cannot be written; `StoreBusyError`, `DiskError`: that may pass.
        """
        self.require(whole=True)
        with self._transaction("BEGIN IMMEDIATE", wait_s) as connection:
            yield connection
        self._empty_long_log()

    def write(self, steps: deque[Any], wait_s: float, held: Callable[[], None] = lambda: None) -> None:
        """Does steps (each a `Step`) in order, in short transactions; those on disk are taken from the left.

        Args:
            wait_s: how long each transaction waits for another process.
            held: raises where the steps may no longer be done; asked within each transaction.

        Raises:
            StoreError: as from `writing`; what was not done is left.
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
        """Leaves nothing in the files of what was deleted: not in the index of words, not in unused parts of
        pages, not in the log.

        The index is merged in short transactions. Then the file is written anew, which others wait for: a
        second for each 100 MB. A reader in another process is waited for, but nobody has to wait with us;
        where that takes too long the log is emptied later.

        Raises:
            StoreError: the file cannot be written.
        """
        # FTS5 only notes that words are gone, until all of its index is merged: -n begins that, n goes on.
        pages, merging = -MERGED_PAGES, True
        while merging:
            with self.writing(LONG_WAIT_S) as connection:
                end = time.monotonic() + SHORT_S
                while merging and time.monotonic() < end:
                    before = connection.total_changes
                    connection.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
                    merging = connection.total_changes - before >= 2  # as the manual of FTS5 says
                    pages = MERGED_PAGES
            time.sleep(PAUSE_S)
        if self._standing is None:
            return
        # What is deleted is overwritten, but a row that once was moved to another page left a copy behind.
        # With a connection of its own: our other threads read meanwhile.
        with explained(self.path), contextlib.closing(_connect(str(self.path))) as alone:
            alone.execute(f"PRAGMA busy_timeout = {1000 * LONG_WAIT_S:.0f}")
            alone.execute("VACUUM")
        give_up = time.monotonic() + WAIT_S
        while self.empty_log() and time.monotonic() < give_up:
            time.sleep(PAUSE_S)

    def _empty_long_log(self) -> None:
        """SQLite would do it by itself (`wal_autocheckpoint`), but that looks like a stranger's writing.

        What was committed is in the log: it is no harm if this fails, and the next transaction says why.
        """
        if self._standing is None:
            return
        if not self._standing.has_log:
            self._standing.left()
        elif self._standing.log_bytes() >= self._empty_from_bytes:
            with contextlib.suppress(StoreError):
                self.empty_log()
            self._empty_from_bytes = self._standing.log_bytes() + LOG_BYTES

    def empty_log(self) -> bool:
        """Writes the log into the database; whether somebody prevented it.

        Most of it is done while others write; for the rest they wait.

        Raises:
            StoreError: the file cannot be written.
        """
        if self._standing is None:
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
                self._standing.left()

    def close(self) -> None:
        with self._lock:
            self._standing = None
            self._connection.close()

    @contextlib.contextmanager
    def _transaction(self, begin: str, wait_s: float = WAIT_S) -> Iterator[sqlite3.Connection]:
        with explained(self.path), self._begun(begin, wait_s):
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk has rolled back already
                    self._connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _begun(self, begin: str, wait_s: float) -> Iterator[None]:
        """Begins a transaction and keeps other threads out of it; while it waits they may go on.

        Raises:
            sqlite3.OperationalError: another process went on writing.
        """
        give_up = time.monotonic() + wait_s
        while True:
            with self._lock:
                if self._begin(begin, last=time.monotonic() >= give_up):
                    yield
                    return
            time.sleep(POLL_S)

    def _begin(self, begin: str, last: bool) -> bool:
        """Begins a transaction, if no other process is writing.

        Raises:
            sqlite3.OperationalError: one is, and it was the `last` try.
        """
        # SQLite itself looks every 0.1 s, and would miss the moments that a long job leaves.
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


def _open(path: Path) -> sqlite3.Connection:
    _create(path)
    try:
        connection = _connect(str(path))
    except sqlite3.OperationalError:
        # In a folder that cannot be written WAL has nowhere to put its index: without a log there is
        # nothing to look up in it either.
        log = path.with_name(path.name + "-wal")
        if os.access(path.parent, os.W_OK) or (log.exists() and log.stat().st_size):
            raise
        return _connect(path.absolute().as_uri() + "?immutable=1")
    return connection


def _create(path: Path) -> None:
    """An empty file of the owner alone; SQLite gives its log the same permissions.

    A file that is there is never opened here: to close it would drop all locks that this process has on it
    (POSIX), those of another connection too, and what others write then would be lost.
    """
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        no_link(path.with_name(name))
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | SAFELY, 0o600))
    except FileExistsError:
        if path.stat().st_mode & 0o077 and os.access(path, os.W_OK):  # copied here by hand, say
            path.chmod(0o600)
    except OSError:
        if not path.is_file():
            raise  # else it may still be read


def _connect(where: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        where,
        timeout=WAIT_S,
        isolation_level=None,  # transactions are ours to begin
        check_same_thread=False,
        uri=where.startswith("file:"),
    )
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        _log_ahead(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")  # what is removed is overwritten
        connection.execute(f"PRAGMA journal_size_limit = {16 << 20}")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # see `Database._empty_long_log`
        _migrate(connection, where)
    except BaseException:
        connection.close()
        raise
    return connection


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Switches a new file to WAL. SQLite does not wait for others here, and two may begin at once.

    Where that cannot be (an immutable file) the mode stays as it is, without an error.
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
    """Applies what is missing, all of it or nothing.

    Raises:
        StoreError: the file was written by a newer version.
    """
    newest = len(MIGRATIONS)
    if _version(connection) < newest:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for script in MIGRATIONS[_version(connection) :]:  # asked again: others may have done it
                for statement in _statements(script):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {max(newest, _version(connection))}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    version = _version(connection)
    if version > newest:
        raise StoreError(
            f"{where} was written by a newer h2o-chat: it has version {version}, this one knows {newest}.",
            "Update h2o-chat, or choose another folder with --data or H2O_CHAT_DATA.",
        )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one: `executescript` would commit before each script."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if statement.strip() and sqlite3.complete_statement(statement):
            yield statement
            statement = ""
