"""Writes one conversation. When a method returns, its change is on disk or waits in order.

An answer that is begun while another one is open, or gone on with while none is, raises RuntimeError.
"""

import json
import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from h2o_chat.store import records
from h2o_chat.store.backlog import Backlog
from h2o_chat.store.data_folder import Lock
from h2o_chat.store.database import Database, Step
from h2o_chat.store.records import Pieces, StoredMessage, clean, title_of
from h2o_chat.store.store_errors import explained


class Writer:
    """Holds the lock of one conversation; made by `Store.claim` or `Store.begin`; a context manager.

    No method raises errors of the disk: see `backlog.trouble`.

    Args:
        created: creates the conversation, if it does not exist yet.

    Raises:
        StoreError: the conversation cannot be read.
    """

    def __init__(
        self, database: Database, conversation: str, lock: Lock, created: Step | None = None
    ) -> None:
        self.conversation = conversation
        self.backlog = Backlog(database, self._require_lock)  # changes that are not on disk yet
        self._database = database
        self._lock = lock
        self._open: int | None = None  # number of the answer that is streaming
        self._tokens = 0  # tokens of that answer so far
        self._parents: dict[int, int | None] = {}
        """Parents of the messages added since the last answer ended: these can be withdrawn."""
        mine = "FROM messages WHERE conversation = ?"
        [[newest, left, leaf]] = database.rows(
            f"SELECT (SELECT max(number) {mine}), EXISTS (SELECT 1 {mine} AND open),"
            " (SELECT leaf FROM conversations WHERE id = ?)",
            *(conversation, conversation, conversation),
        )
        self._newest: int = newest or 0
        self.leaf: int | None = leaf  # the message that the next one follows; None: there is none
        if created:
            self.backlog.add("other", created)
        if left:
            self.backlog.add("other", lambda connection: _settle(connection, self.conversation))

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases the conversation; an answer still open becomes `interrupted`. May be called again.

        Changes that still wait are lost; look at `backlog` before.
        """
        self.settle()
        if self.backlog.trouble is not None:
            self.backlog.flush()
        self.backlog.close()
        self._lock.release()

    def _require_lock(self) -> None:
        with explained(self._database.path):
            self._lock.require()

    def move(self, leaf: int | None) -> None:
        """Goes to another branch: the next message follows `leaf`, and the conversation resumes there.

        Raises:
            ValueError: `leaf` is no message of this conversation; not checked while changes wait.
            StoreError: the database cannot be read.
        """
        if leaf is not None and not self.backlog:
            found = "SELECT 1 FROM messages WHERE conversation = ? AND number = ?"
            if not self._database.rows(found, self.conversation, leaf):
                raise ValueError(f"message {leaf} is not in conversation {self.conversation}")
        self.leaf = leaf
        self.backlog.add("other", lambda connection: _set_leaf(connection, self.conversation, leaf))

    def said(
        self, role: str, text: str, ids: Sequence[int] = (), recalled: Pieces = (), *, open: bool = False
    ) -> int:
        """Adds a message after `leaf`; it becomes the leaf. Returns its number in the conversation.

        The user's first one gives the title.

        Args:
            open: it is an answer whose tokens are still to come, see `insert_message`.
        """
        number, parent, now = self._newest + 1, self.leaf, time.time()
        message = StoredMessage(*(number, parent, role, text), ids=tuple(ids), created=now, recalled=recalled)

        def write(connection: sqlite3.Connection) -> None:
            records.insert_message(connection, self.conversation, message, open=open)
            _set_leaf(connection, self.conversation, number)
            _touch(connection, self.conversation, now)
            if role == "user":
                connection.execute(
                    "UPDATE conversations SET title = ? WHERE id = ? AND title = ''",
                    (title_of(text), self.conversation),
                )

        self._parents[number] = parent
        self.leaf = self._newest = number
        self.backlog.add("message", write, text)
        return number

    def answering(self) -> int:
        """Adds an empty answer after `leaf`, as the leaf; `token` adds to it. Returns its number."""
        if self._open is not None:
            raise RuntimeError(f"message {self._open} is not finished")
        self._open, self._tokens = self.said("assistant", "", open=True), 0
        return self._open

    def token(self, token: int, text: str) -> None:
        """Adds a token to the open answer, at the same cost whatever its length."""
        if self._open is None:
            raise RuntimeError("no answer is open")
        row = (self._tokens, token, clean(text), self.conversation, self._open)
        self._tokens += 1
        self.backlog.add("token", lambda connection: connection.execute(_TOKEN, row))

    def place(self, message: int, first: int, last: int) -> None:
        values = {"number": message, "first": first, "last": last}
        self._change(f"UPDATE messages SET first = :first, last = :last WHERE {_MINE}", values)

    def pinned(self, message: int, on: bool) -> None:
        """Stores whether the user protects the tokens of a message from eviction."""
        self._change(f"UPDATE messages SET pinned = :on WHERE {_MINE}", {"number": message, "on": on})

    def finished(self, text: str, finish: str, first: int, last: int) -> None:
        """Ends the open answer; `text` is all of it, without the part that a stop text cut off."""
        if (number := self._open) is None:
            raise RuntimeError("no answer is open")
        now = time.time()

        def write(connection: sqlite3.Connection) -> None:
            row = connection.execute(records.NUMBERED, (self.conversation, number)).fetchone()
            ids, _ = records.streamed(connection, row[0])
            _finish(connection, row[0], text, finish, first, last, ids)
            _touch(connection, self.conversation, now)

        self._open = None
        self._parents.clear()
        self.backlog.add("other", write)

    def withdraw(self, messages: Sequence[int]) -> None:
        """Deletes messages at the end of a branch that were not sent after all.

        If the leaf is among them, it moves back to the message before them.

        Raises:
            ValueError: another message follows one of them, or an answer was finished since.
        """
        gone = set(messages)
        after = [number for number, parent in self._parents.items() if parent in gone and number not in gone]
        if after or not gone <= self._parents.keys():
            raise ValueError(f"something follows one of the messages {sorted(gone)}")
        while self.leaf in gone:
            self.leaf = self._parents[self.leaf]
        leaf = self.leaf

        def write(connection: sqlite3.Connection) -> None:
            for number in sorted(gone, reverse=True):
                _untitle(connection, self.conversation, number)
                connection.execute(
                    "DELETE FROM messages WHERE conversation = ? AND number = ?", (self.conversation, number)
                )
            _set_leaf(connection, self.conversation, leaf)

        for number in gone:
            del self._parents[number]
        if self._open in gone:
            self._open = None
        self.backlog.add("other", write)

    def run(self, session: dict[str, Any]) -> None:
        """Stores the session with which the conversation was opened: model, versions and settings."""
        insert = "INSERT INTO runs (conversation, started, session) VALUES (:conversation, :now, :session)"
        self._change(insert, {"now": time.time(), "session": json.dumps(session)})

    def settings(self, settings: dict[str, Any]) -> None:
        update = "UPDATE conversations SET settings = :settings WHERE id = :conversation"
        self._change(update, {"settings": json.dumps(settings)})

    def settle(self) -> None:
        """Finishes an open answer with the tokens so far, as `interrupted`."""
        if self._open is not None:
            self._open = None
            self.backlog.add("other", lambda connection: _settle(connection, self.conversation))

    def _change(self, sql: str, values: dict[str, Any]) -> None:
        row = values | {"conversation": self.conversation}
        self.backlog.add("other", lambda connection: connection.execute(sql, row))


_MINE = "conversation = :conversation AND number = :number"
_TOKEN = f"INSERT INTO stream SELECT id, ?, ?, ? FROM ({records.NUMBERED})"


def _finish(
    connection: sqlite3.Connection,
    message: int,
    text: str,
    finish: str,
    first: int,
    last: int,
    ids: Sequence[int],
) -> None:
    connection.execute(
        "UPDATE messages SET open = 0, text = ?, finish = ?, first = ?, last = ?, ids = ?, tokens = ?"
        " WHERE id = ?",
        (clean(text), finish, first, last, records.pack(ids), len(ids), message),
    )
    connection.execute("DELETE FROM stream WHERE message = ?", (message,))


def _settle(connection: sqlite3.Connection, conversation: str) -> None:
    """Finishes open answers of a conversation with the tokens so far, as `interrupted`."""
    left = connection.execute(
        "SELECT id, first FROM messages WHERE conversation = ? AND open", (conversation,)
    ).fetchall()
    for message, first in left:
        ids, text = records.streamed(connection, message)
        last = first + len(ids) - 1 if first >= 0 and ids else -1
        _finish(connection, message, text, "interrupted", first, last, ids)


def _untitle(connection: sqlite3.Connection, conversation: str, number: int) -> None:
    """Clears the title if it was made from this message."""
    said = connection.execute(
        "SELECT text FROM messages WHERE conversation = ? AND number = ? AND role = 'user'",
        (conversation, number),
    ).fetchone()
    if said:
        connection.execute(
            "UPDATE conversations SET title = '' WHERE id = ? AND title = ?",
            (conversation, title_of(said[0])),
        )


def _set_leaf(connection: sqlite3.Connection, conversation: str, leaf: int | None) -> None:
    connection.execute("UPDATE conversations SET leaf = ? WHERE id = ?", (leaf, conversation))


def _touch(connection: sqlite3.Connection, conversation: str, now: float) -> None:
    connection.execute("UPDATE conversations SET updated = ? WHERE id = ?", (now, conversation))
