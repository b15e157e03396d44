"""The one who writes a conversation. What a method was told is on disk when it returns, or waits in order."""

import json
import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from h2o_chat.store.database import Database, Step
from h2o_chat.store.explained import explained
from h2o_chat.store.lock import Lock
from h2o_chat.store.rows import (
    NUMBERED,
    Pieces,
    clean,
    insert_message,
    pack,
    streamed,
    title_of,
)
from h2o_chat.store.waiting import Waiting


class Writer:
    """Holds one conversation; made by `Store.claim` or `Store.begin`, and a context manager that lets it go.

    No method says what is wrong with the disk: `waiting` does.

    Args:
        created: writes a conversation that is not there yet.

    Raises:
        StoreError: the conversation cannot be read.
    """

    def __init__(
        self, database: Database, conversation: str, lock: Lock, created: Step | None = None
    ) -> None:
        self.conversation = conversation
        self.waiting = Waiting(database, self._require_lock)
        """What was told and is not on disk yet."""
        self._database = database
        self._lock = lock
        self._open: int | None = None
        """The answer that is being written."""
        self._tokens = 0
        """Of it."""
        self._parents: dict[int, int | None] = {}
        """Of the messages told since the last answer ended."""
        mine = "FROM messages WHERE conversation = ?"
        [[newest, left]] = database.rows(
            f"SELECT (SELECT max(number) {mine}), EXISTS (SELECT 1 {mine} AND open)",
            conversation,
            conversation,
        )
        leaf = database.rows("SELECT leaf FROM conversations WHERE id = ?", conversation)
        self._newest: int = newest or 0
        self._leaf: int | None = leaf[0][0] if leaf else None
        if created:
            self.waiting.add("else", created)
        if left:
            self.waiting.add("else", lambda connection: _settle(connection, self.conversation))

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets the conversation go; an answer still open is `interrupted`. May be called again.

        What still waits then is lost; whoever asks `waiting` before can wait for it.
        """
        self.settle()
        if self.waiting.trouble is not None:
            self.waiting.flush()
        self.waiting.close()
        self._lock.release()

    def _require_lock(self) -> None:
        with explained(self._database.path):
            self._lock.require()

    @property
    def leaf(self) -> int | None:
        """The message that the next one follows; None: nothing was said."""
        return self._leaf

    def move(self, leaf: int | None) -> None:
        """Goes to another branch: the next message follows `leaf`, and there the conversation is resumed.

        Raises:
            ValueError: it is no message of this conversation; while anything waits that is not looked up.
            StoreError: that cannot be read.
        """
        if leaf is not None and not self.waiting:
            found = "SELECT 1 FROM messages WHERE conversation = ? AND number = ?"
            if not self._database.rows(found, self.conversation, leaf):
                raise ValueError(f"message {leaf} is not in conversation {self.conversation}")
        self._leaf = leaf
        self.waiting.add("else", lambda connection: _set_leaf(connection, self.conversation, leaf))

    def said(self, role: str, text: str, ids: Sequence[int] = (), recalled: Pieces = ()) -> int:
        """A whole message after `leaf`; it becomes the leaf. The first of a user names the conversation.

        Returns:
            Its number in the conversation.
        """
        number, parent, now, ids = self._newest + 1, self._leaf, time.time(), tuple(ids)

        def write(connection: sqlite3.Connection) -> None:
            insert_message(
                connection, self.conversation, number, parent, role, text, now, ids=ids, recalled=recalled
            )
            _set_leaf(connection, self.conversation, number)
            _touch(connection, self.conversation, now)
            if role == "user":
                connection.execute(
                    "UPDATE conversations SET title = ? WHERE id = ? AND title = ''",
                    (title_of(text), self.conversation),
                )

        self._told(number)
        self.waiting.add("message", write, text)
        return number

    def answering(self) -> int:
        """An answer after `leaf`, empty so far; it becomes the leaf and takes the tokens that follow.

        Returns:
            Its number in the conversation.

        Raises:
            RuntimeError: the last answer was not finished.
        """
        if self._open is not None:
            raise RuntimeError(f"message {self._open} is not finished")
        number, parent, now = self._newest + 1, self._leaf, time.time()

        def write(connection: sqlite3.Connection) -> None:
            insert_message(connection, self.conversation, number, parent, "assistant", "", now, open=True)
            _set_leaf(connection, self.conversation, number)
            _touch(connection, self.conversation, now)

        self._told(number)
        self._open, self._tokens = number, 0
        self.waiting.add("message", write)
        return number

    def token(self, token: int, text: str) -> None:
        """One more token of the open answer. It costs the same however long the answer is.

        Raises:
            RuntimeError: no answer is open.
        """
        if self._open is None:
            raise RuntimeError("no answer is open")
        row = (self._tokens, token, clean(text), self.conversation, self._open)
        self._tokens += 1
        self.waiting.add("token", lambda connection: connection.execute(_TOKEN, row))

    def place(self, message: int, first: int, last: int, ids: Sequence[int] | None = None) -> None:
        """Says where the tokens of a message lie, and which they are."""
        fed = None if ids is None else tuple(ids)

        def write(connection: sqlite3.Connection) -> None:
            where = (self.conversation, message)
            connection.execute(
                "UPDATE messages SET first = ?, last = ? WHERE conversation = ? AND number = ?",
                (first, last, *where),
            )
            if fed is not None:
                connection.execute(
                    "UPDATE messages SET ids = ?, tokens = ? WHERE conversation = ? AND number = ?",
                    (pack(fed), len(fed), *where),
                )

        self.waiting.add("else", write)

    def pinned(self, message: int, on: bool) -> None:
        """A person protected the tokens of a message, or let them go."""
        self._set("UPDATE messages SET pinned = ? WHERE conversation = ? AND number = ?", on, message)

    def finished(self, text: str, finish: str, first: int, last: int) -> None:
        """Ends the open answer.

        Args:
            text: the whole of it: what a stop cut off is not in it.

        Raises:
            RuntimeError: no answer is open.
        """
        if (number := self._open) is None:
            raise RuntimeError("no answer is open")
        now = time.time()

        def write(connection: sqlite3.Connection) -> None:
            row = connection.execute(NUMBERED, (self.conversation, number)).fetchone()
            ids, _ = streamed(connection, row[0])
            _finish(connection, row[0], text, finish, first, last, ids)
            _touch(connection, self.conversation, now)

        self._open = None
        self._parents.clear()
        self.waiting.add("else", write)

    def withdraw(self, messages: Sequence[int]) -> None:
        """Deletes messages at the end of a branch that were never really said.

        If the leaf is among them it goes back to what came before.

        Raises:
            ValueError: something else follows one of them, or an answer was finished since.
        """
        gone = set(messages)
        after = [number for number, parent in self._parents.items() if parent in gone and number not in gone]
        if after or not gone <= self._parents.keys():
            raise ValueError(f"something follows one of the messages {sorted(gone)}")
        while self._leaf in gone:
            self._leaf = self._parents[self._leaf]
        leaf = self._leaf

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
        self.waiting.add("else", write)

    def run(self, session: dict[str, Any]) -> None:
        """Notes that the conversation was opened: with which model, versions and settings."""
        row = (self.conversation, time.time(), json.dumps(session))
        insert = "INSERT INTO runs (conversation, started, session) VALUES (?, ?, ?)"
        self.waiting.add("else", lambda connection: connection.execute(insert, row))

    def settings(self, settings: dict[str, Any]) -> None:
        """What it is held with from here on."""
        self._set("UPDATE conversations SET settings = ? WHERE id = ?", json.dumps(settings))

    def title(self, text: str) -> None:
        """Names the conversation."""
        self._set("UPDATE conversations SET title = ? WHERE id = ?", clean(text))

    def settle(self) -> None:
        """Finishes an answer that is open, as far as it got: `interrupted`."""
        if self._open is not None:
            self._open = None
            self.waiting.add("else", lambda connection: _settle(connection, self.conversation))

    def _told(self, number: int) -> None:
        self._parents[number] = self._leaf
        self._leaf = self._newest = number

    def _set(self, update: str, value: Any, *more: Any) -> None:
        row = (value, self.conversation, *more)
        self.waiting.add("else", lambda connection: connection.execute(update, row))


_TOKEN = f"INSERT INTO stream SELECT id, ?, ?, ? FROM ({NUMBERED})"


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
        (clean(text), finish, first, last, pack(ids), len(ids), message),
    )
    connection.execute("DELETE FROM stream WHERE message = ?", (message,))


def _settle(connection: sqlite3.Connection, conversation: str) -> None:
    """Finishes what was left open, as far as it got."""
    left = connection.execute(
        "SELECT id, first FROM messages WHERE conversation = ? AND open", (conversation,)
    ).fetchall()
    for message, first in left:
        ids, text = streamed(connection, message)
        last = first + len(ids) - 1 if first >= 0 and ids else -1
        _finish(connection, message, text, "interrupted", first, last, ids)


def _untitle(connection: sqlite3.Connection, conversation: str, number: int) -> None:
    """A conversation is not named after what was never said."""
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
