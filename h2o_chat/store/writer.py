"""The one who writes a conversation. What a method was told is on disk when it returns."""

import contextlib
import json
import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from h2o_chat.errors import StoreError
from h2o_chat.store.database import Database
from h2o_chat.store.lock import Lock
from h2o_chat.store.rows import clean, insert_message, pack, streamed, title_of


class Writer:
    """Holds one conversation; made by `Store.claim`, and a context manager that lets it go.

    Raises:
        StoreError: from every method: nothing of what it was told is on disk, what was told before is. Only
            `token` keeps what it could not write, for the next call that can.
    """

    def __init__(self, database: Database, conversation: str, lock: Lock) -> None:
        self.conversation = conversation
        self._database = database
        self._lock = lock
        self._open: int | None = None
        """The answer that is being written."""
        self._written = 0
        """Its tokens on disk."""
        self._waiting: list[tuple[int, str]] = []
        """Its tokens that no transaction took yet: the disk is full, say. An answer must have no holes."""
        self._settle()
        [[leaf]] = database.rows("SELECT leaf FROM conversations WHERE id = ?", conversation)
        self._leaf: int | None = leaf

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets the conversation go; an answer still open is `interrupted`. May be called again."""
        if self._open is not None:
            with contextlib.suppress(StoreError):  # then the next who claims it does it
                self._settle()
        self._lock.release()

    @property
    def leaf(self) -> int | None:
        """The message that the next one follows; None: nothing was said."""
        return self._leaf

    def move(self, leaf: int | None) -> None:
        """Goes to another branch: the next message follows `leaf`, and there the conversation is resumed.

        Raises:
            ValueError: it is no message of this conversation.
        """
        with self._database.writing() as connection:
            if leaf is not None and not self._parents(connection, [leaf]):
                raise ValueError(f"message {leaf} is not in conversation {self.conversation}")
            self._set_leaf(connection, leaf)
        self._leaf = leaf

    def said(self, role: str, text: str, ids: Sequence[int] = (), first: int = -1, last: int = -1) -> int:
        """A whole message after `leaf`; it becomes the leaf. The first of a user names the conversation."""
        with self._database.writing() as connection:
            message = self._insert(connection, role, text, ids=ids, first=first, last=last)
            if role == "user":
                connection.execute(
                    "UPDATE conversations SET title = ? WHERE id = ? AND title = ''",
                    (title_of(text), self.conversation),
                )
        self._leaf = message
        return message

    def answering(self) -> int:
        """An answer after `leaf`, empty so far; it becomes the leaf and takes the tokens that follow.

        Raises:
            RuntimeError: the last answer was not finished.
        """
        if self._open is not None:
            raise RuntimeError(f"message {self._open} is not finished")
        with self._database.writing() as connection:
            message = self._insert(connection, "assistant", "", open=True)
        self._leaf = self._open = message
        self._written = 0
        self._waiting.clear()
        return message

    def token(self, token: int, text: str) -> None:
        """One more token of the open answer. It costs the same however long the answer is.

        Raises:
            RuntimeError: no answer is open.
        """
        if self._open is None:
            raise RuntimeError("no answer is open")
        self._waiting.append((token, clean(text)))
        with self._database.writing() as connection:
            self._write_waiting(connection, self._open)
        self._noted()

    def place(self, message: int, first: int, last: int, ids: Sequence[int] | None = None) -> None:
        """Says where the tokens of a message lie, and which they are."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE messages SET first = ?, last = ? WHERE id = ? AND conversation = ?",
                (first, last, message, self.conversation),
            )
            if ids is not None:
                connection.execute(
                    "UPDATE messages SET ids = ?, tokens = ? WHERE id = ? AND conversation = ?",
                    (pack(ids), len(ids), message, self.conversation),
                )

    def pinned(self, message: int, on: bool) -> None:
        """A person protected the tokens of a message, or let them go."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE messages SET pinned = ? WHERE id = ? AND conversation = ?",
                (on, message, self.conversation),
            )

    def finished(self, text: str, finish: str, first: int, last: int) -> None:
        """Ends the open answer.

        Args:
            text: the whole of it: what a stop cut off is not in it.

        Raises:
            RuntimeError: no answer is open.
        """
        if self._open is None:
            raise RuntimeError("no answer is open")
        with self._database.writing() as connection:
            self._write_waiting(connection, self._open)
            ids, _ = streamed(connection, self._open)
            _finish(connection, self._open, text, finish, first, last, ids)
            self._touch(connection)
        self._noted()
        self._open = None

    def withdraw(self, messages: Sequence[int]) -> None:
        """Deletes messages at the end of a branch that were never really said.

        If the leaf is among them it goes back to what came before.

        Raises:
            ValueError: something else follows one of them.
        """
        newest_first = sorted(messages, reverse=True)
        with self._database.writing() as connection:
            parents = self._parents(connection, newest_first)
            leaf = self._leaf
            while leaf in parents:
                leaf = parents[leaf]
            try:
                for message in newest_first:
                    self._untitle(connection, message)
                    connection.execute(
                        "DELETE FROM messages WHERE id = ? AND conversation = ?", (message, self.conversation)
                    )
            except sqlite3.IntegrityError as error:
                raise ValueError(f"something follows one of the messages {newest_first}") from error
            self._set_leaf(connection, leaf)
        self._leaf = leaf
        if self._open in parents:
            self._open = None

    def run(self, session: dict[str, Any]) -> None:
        """Notes that the conversation was opened: with which model, versions and settings."""
        with self._database.writing() as connection:
            connection.execute(
                "INSERT INTO runs (conversation, started, session) VALUES (?, ?, ?)",
                (self.conversation, time.time(), json.dumps(session)),
            )

    def settings(self, settings: dict[str, Any]) -> None:
        """What it is held with from here on."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE conversations SET settings = ? WHERE id = ?",
                (json.dumps(settings), self.conversation),
            )

    def title(self, text: str) -> None:
        """Names the conversation."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE conversations SET title = ? WHERE id = ?", (clean(text), self.conversation)
            )

    def _insert(self, connection: sqlite3.Connection, role: str, text: str, **more: Any) -> int:
        message = insert_message(connection, self.conversation, self._leaf, role, text, time.time(), **more)
        self._set_leaf(connection, message)
        self._touch(connection)
        return message

    def _write_waiting(self, connection: sqlite3.Connection, message: int) -> None:
        connection.executemany(
            "INSERT INTO stream VALUES (?, ?, ?, ?)",
            [(message, self._written + number, *one) for number, one in enumerate(self._waiting)],
        )

    def _noted(self) -> None:
        self._written += len(self._waiting)
        self._waiting.clear()

    def _settle(self) -> None:
        """Finishes what was left open, as far as it got."""
        with self._database.writing() as connection:
            if self._open is not None:
                self._write_waiting(connection, self._open)
            left = connection.execute(
                "SELECT id, first FROM messages WHERE conversation = ? AND open", (self.conversation,)
            ).fetchall()
            for message, first in left:
                ids, text = streamed(connection, message)
                last = first + len(ids) - 1 if first >= 0 and ids else -1
                _finish(connection, message, text, "interrupted", first, last, ids)
        self._open = None

    def _parents(
        self, connection: sqlite3.Connection, messages: Sequence[int]
    ) -> dict[int | None, int | None]:
        """Of those that are messages of this conversation."""
        found: dict[int | None, int | None] = {}
        for message in messages:
            found.update(
                connection.execute(
                    "SELECT id, parent FROM messages WHERE id = ? AND conversation = ?",
                    (message, self.conversation),
                )
            )
        return found

    def _untitle(self, connection: sqlite3.Connection, message: int) -> None:
        """A conversation is not named after what was never said."""
        said = connection.execute(
            "SELECT text FROM messages WHERE id = ? AND role = 'user'", (message,)
        ).fetchone()
        if said:
            connection.execute(
                "UPDATE conversations SET title = '' WHERE id = ? AND title = ?",
                (self.conversation, title_of(said[0])),
            )

    def _set_leaf(self, connection: sqlite3.Connection, leaf: int | None) -> None:
        connection.execute("UPDATE conversations SET leaf = ? WHERE id = ?", (leaf, self.conversation))

    def _touch(self, connection: sqlite3.Connection) -> None:
        connection.execute(
            "UPDATE conversations SET updated = ? WHERE id = ?", (time.time(), self.conversation)
        )


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
