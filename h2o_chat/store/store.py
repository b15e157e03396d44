"""Conversations on disk: one SQLite database, a lock and a folder of saved caches for each conversation.

Messages form a tree: going back adds a sibling, and nothing is ever overwritten. Anybody may read; whoever
writes holds the conversation (`claim`), until `Writer.close` or the death of the process.
"""

import difflib
import json
import secrets
import shutil
import sqlite3
import time
from base64 import b32encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from h2o_chat.errors import BusyError, StoreError, UsageError
from h2o_chat.store.database import Database, Rows, explained
from h2o_chat.store.lock import Held, Lock, held
from h2o_chat.store.rows import (
    BRANCH,
    MESSAGE,
    NEWEST_FIRST,
    SEARCH,
    SUMMARY,
    Conversation,
    Hit,
    Hits,
    Ids,
    Messages,
    Streamed,
    Summaries,
    Summary,
    clean,
    insert_message,
    message_of,
    streamed,
)
from h2o_chat.store.writer import Writer

DATABASE = "conversations.db"


class Store:
    """All conversations of one data folder. Any thread may call it; see `database.py`.

    Args:
        folder: made, for its owner alone, where it does not exist.

    Raises:
        StoreError: from here and every method: the files cannot be read or written, with what to do.
        UsageError: from every method that takes one: there is no such conversation.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with explained(folder):
            _make_folder(folder)
        self._database = Database(folder / DATABASE)

    def close(self) -> None:
        """Close writers first."""
        self._database.close()

    def create(self, model: str, settings: dict[str, Any], title: str = "") -> str:
        """A conversation in which nobody has spoken yet; returns its new id."""
        with self._database.writing() as connection:
            return _create(connection, model, settings, title, time.time())

    def put(self, conversations: Iterable[Conversation]) -> Ids:
        """Whole conversations from elsewhere, all of them or none; their new ids.

        They count as updated now. Their messages get new numbers.

        Raises:
            KeyError: a parent or a leaf is none of the messages, or comes later.
        """
        with self._database.writing() as connection:
            return [_put(connection, conversation) for conversation in conversations]

    def find(self, wanted: str) -> str:
        """The id of a conversation by its id, the beginning of its id, or `last`.

        Raises:
            UsageError: none, or several; names those that are near.
        """
        ids = [str(row[0]) for row in self._database.rows(f"SELECT id FROM conversations {NEWEST_FIRST}")]
        low = wanted.strip().lower()
        if low in ids:
            return low
        if not ids:
            raise UsageError(f"There is no conversation in {self.folder} yet.")
        if low == "last":
            return ids[0]
        starting = [one for one in ids if low and one.startswith(low)]
        if len(starting) == 1:
            return starting[0]
        if starting:
            raise UsageError(
                f"{wanted!r} begins {len(starting)} ids: {_several(starting)}.", "Give more of it."
            )
        near = difflib.get_close_matches(low, ids, n=3, cutoff=0.5)
        raise UsageError(
            f"There is no conversation {wanted!r}." + (f" Near it: {_several(near)}." if near else ""),
            "h2o-chat sessions list shows them all; last is the newest.",
        )

    def list(self, limit: int | None = None) -> Summaries:
        """Newest first."""
        return self._summaries(f"{NEWEST_FIRST} LIMIT ?", -1 if limit is None else limit)

    def summary(self, conversation: str) -> Summary:
        found = self._summaries("WHERE id = ?", conversation)
        if not found:
            raise _unknown(conversation)
        return found[0]

    def settings(self, conversation: str) -> dict[str, Any]:
        """What it was created with."""
        try:
            settings: dict[str, Any] = json.loads(self._one("settings", conversation))
        except (ValueError, TypeError, RecursionError) as error:
            raise StoreError(f"The settings of conversation {conversation} are damaged: {error}.") from error
        return settings if isinstance(settings, dict) else {}

    def last_run(self, conversation: str) -> dict[str, Any]:
        """The session it was last opened with; empty if it never was."""
        rows = self._database.rows(
            "SELECT session FROM runs WHERE conversation = ? ORDER BY id DESC LIMIT 1", conversation
        )
        try:
            session: dict[str, Any] = json.loads(rows[0][0]) if rows else {}
        except (ValueError, TypeError, RecursionError):  # damaged: then nobody knows
            return {}
        return session if isinstance(session, dict) else {}

    def leaf(self, conversation: str) -> int | None:
        """Where the active branch ends."""
        leaf: int | None = self._one("leaf", conversation)
        return leaf

    def whole(self, conversation: str) -> Conversation:
        """All of it, to be exported."""
        about = self.summary(conversation)
        leaf, messages = self.leaf(conversation), self.messages(conversation)
        return Conversation(
            id=about.id,
            title=about.title,
            model=about.model,
            settings=self.settings(conversation),
            created=about.created,
            updated=about.updated,
            leaf=leaf,
            messages=messages,
        )

    def search(self, words: str, limit: int = 50) -> Hits:
        """Messages with all the words (the last may be the beginning of one), newest first.

        What streams just now is not among them, and words past the fiftieth are not looked for.
        """
        query = _query(words)
        if not query:
            return []
        return [Hit(*row) for row in self._database.rows(SEARCH, query, limit)]

    def rename(self, conversation: str, title: str) -> None:
        if not title.strip():
            raise UsageError("The title is empty.", "Give some words: it is what lists show.")
        with self._database.writing() as connection:
            done = connection.execute(
                "UPDATE conversations SET title = ? WHERE id = ?", (clean(title), conversation)
            )
            if not done.rowcount:
                raise _unknown(conversation)

    def remove(self, conversation: str) -> None:
        """Removes it, with all its branches and saved caches; no word of it is left in the files.

        Raises:
            BusyError: it is open.
        """
        lock = self._lock(conversation)
        try:
            with self._database.writing() as connection:
                connection.execute("DELETE FROM conversations WHERE id = ?", (conversation,))
            with explained(self.folder):
                if self._cache_folder(conversation).exists():
                    shutil.rmtree(self._cache_folder(conversation))
            self._database.forget_removed()
        finally:
            lock.release()

    def path(self, conversation: str, leaf: int | None = None) -> Messages:
        """One branch from its root to `leaf`; None is the active one.

        Of an answer that is not finished: what is there of it, `interrupted` unless somebody holds the
        conversation.
        """
        if leaf is None:
            leaf = self.leaf(conversation)
        return self._messages(conversation, f"id IN ({BRANCH}) ORDER BY id", leaf, conversation)

    def children(self, conversation: str, parent: int | None) -> Messages:
        """What was said after a message (None: at the beginning), in order: more than one are branches."""
        self._one("id", conversation)
        return self._messages(
            conversation, "conversation = ? AND parent IS ? ORDER BY id", conversation, parent
        )

    def messages(self, conversation: str) -> Messages:
        """All branches, parents before children."""
        self._one("id", conversation)
        return self._messages(conversation, "conversation = ? ORDER BY id", conversation)

    def caches(self, conversation: str) -> Path:
        """The folder of its saved caches, made when first asked for."""
        self._one("id", conversation)
        folder = self._cache_folder(conversation)
        with explained(folder):
            _make_folder(folder.parent)
            _make_folder(folder)
        return folder

    def claim(self, conversation: str) -> Writer:
        """Takes the conversation, to write. An answer that a dead process left is finished: `interrupted`.

        Raises:
            BusyError: somebody has it.
        """
        lock = self._lock(conversation)
        try:
            return Writer(self._database, conversation, lock)
        except BaseException:
            lock.release()
            raise

    def _lock(self, conversation: str) -> Lock:
        self._one("id", conversation)
        path = self._lock_file(conversation)
        try:
            with explained(path):
                _make_folder(path.parent)
                lock = Lock(path)
        except Held as holder:
            who = "another process" if holder.pid is None else f"process {holder.pid}"
            raise BusyError(
                f"Conversation {conversation} is open in {who}.",
                f"Leave it there first, or read it: h2o-chat sessions show {conversation}",
            ) from None
        try:
            self._one("id", conversation)  # it may have been removed until we held it
        except BaseException:
            lock.release()
            raise
        return lock

    def _lock_file(self, conversation: str) -> Path:
        return self.folder / "locks" / conversation

    def _cache_folder(self, conversation: str) -> Path:
        return self.folder / "caches" / conversation

    def _one(self, column: str, conversation: str) -> Any:
        found = self._database.rows(f"SELECT {column} FROM conversations WHERE id = ?", conversation)
        if not found:
            raise _unknown(conversation)
        return found[0][0]

    def _summaries(self, where: str, *values: Any) -> Summaries:
        return [Summary(*row) for row in self._database.rows(f"{SUMMARY} {where}", *values)]

    def _messages(self, conversation: str, where: str, *values: Any) -> Messages:
        """Rows as messages; where an answer is not finished, what was streamed of it."""
        rows, partial = self._read(where, values)
        dead = None
        if partial and not held(self._lock_file(conversation)):
            dead = "interrupted"
            rows, partial = self._read(where, values)  # its writer may have finished and left meanwhile
        return [message_of(row, *partial[row[0]], dead) if row[-1] else message_of(row) for row in rows]

    def _read(self, where: str, values: Sequence[Any]) -> tuple[Rows, dict[int, Streamed]]:
        """Rows of `MESSAGE`, and by number the tokens and the text of those that are open."""
        with self._database.reading() as connection:
            rows = connection.execute(f"{MESSAGE} WHERE {where}", values).fetchall()
            return rows, {row[0]: streamed(connection, row[0]) for row in rows if row[-1]}


def conversation_ids(folder: Path, start: str = "") -> list[str]:
    """Ids that begin so, newest first, for the shell's completion: creates nothing and never raises."""
    try:
        if not (folder / DATABASE).is_file():
            return []
        where = (folder / DATABASE).absolute().as_uri() + "?mode=ro"
        connection = sqlite3.connect(where, uri=True, timeout=0.2)
        try:
            rows = connection.execute(f"SELECT id FROM conversations {NEWEST_FIRST}").fetchall()
        finally:
            connection.close()
    except (sqlite3.Error, OSError, ValueError):
        return []
    return [one for (one,) in rows if one.startswith(start.lower())]


def _create(
    connection: sqlite3.Connection, model: str, settings: dict[str, Any], title: str, created: float
) -> str:
    while True:
        conversation = b32encode(secrets.token_bytes(5)).decode().lower()
        done = connection.execute(
            "INSERT OR IGNORE INTO conversations VALUES (?, ?, ?, ?, ?, ?, NULL)",
            (conversation, clean(title), clean(model), json.dumps(settings), created, time.time()),
        )
        if done.rowcount:
            return conversation


def _put(connection: sqlite3.Connection, whole: Conversation) -> str:
    conversation = _create(connection, whole.model, whole.settings, whole.title, whole.created)
    ours: dict[int | None, int | None] = {None: None}
    for message in whole.messages:
        ours[message.id] = insert_message(
            connection,
            conversation,
            ours[message.parent],
            message.role,
            message.text,
            message.created,
            finish=message.finish,
            first=message.first,
            last=message.last,
            ids=message.ids,
            pinned=message.pinned,
        )
    connection.execute("UPDATE conversations SET leaf = ? WHERE id = ?", (ours[whole.leaf], conversation))
    return conversation


def _query(words: str) -> str:
    """Every word as a quoted text, so that none is an operator of FTS5; a NUL would end the query.

    One Latin letter is no beginning of a word: it would find, and walk through, nearly everything.
    """
    terms = clean(words).replace("\0", " ").replace('"', " ").split()[:50]
    begun = terms and (len(terms[-1]) > 1 or not terms[-1].isascii())
    return " ".join(f'"{term}"' for term in terms) + ("*" if begun else "")


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _unknown(conversation: str) -> UsageError:
    return UsageError(f"There is no conversation {conversation!r}.", "See h2o-chat sessions list.")


def _several(ids: Sequence[str]) -> str:
    return ", ".join(ids[:5]) + (", ..." if len(ids) > 5 else "")
