"""Conversations on disk: one SQLite database, a lock and a folder of saved caches for each conversation.

Messages form a tree: going back adds a sibling, and nothing is ever overwritten. Anybody may read; whoever
writes holds the conversation (`claim`), until `Writer.close` or the death of the process.
"""

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from h2o_chat.base.called import called, data_flag
from h2o_chat.base.errors import BusyError, StoreError, UsageError
from h2o_chat.base.own import own_folder
from h2o_chat.events.events import Note
from h2o_chat.store import bulk
from h2o_chat.store.database import WAIT_S, Database
from h2o_chat.store.explained import explained
from h2o_chat.store.find import find
from h2o_chat.store.lock import Held, Lock
from h2o_chat.store.places import Places
from h2o_chat.store.reading import read_messages
from h2o_chat.store.rows import (
    BRANCH,
    BRANCHES,
    IDS,
    NEWEST_FIRST,
    NUMBERED,
    SEARCH,
    SUMMARY,
    Conversation,
    Hit,
    Hits,
    Ids,
    Messages,
    Summaries,
    Summary,
    clean,
    query_of,
)
from h2o_chat.store.writer import Writer

DATABASE = "conversations.db"


class Store:
    """All conversations of one data folder. Any thread may call it; see `database.py`.

    Args:
        folder: made, for its owner alone, where it does not exist. None: everything is in memory, and ends
            with the process.

    Raises:
        StoreError: from here and every method: the files cannot be read or written, with what to do.
        UsageError: from every method that takes one: there is no such conversation.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.notes: list[Note] = []  # what a person should know about the folder
        if folder is not None:
            with explained(folder):
                self.notes += [_mended(folder)] if own_folder(folder) else []
        self._database = Database(folder and folder / DATABASE)
        self._places = Places(folder)

    def empty_log(self) -> None:
        """Writes the log into the database, if that can be done. It stays: a full disk has no room for it."""
        with contextlib.suppress(StoreError):  # what is in the log is stored
            self._database.empty_log()

    def close(self) -> None:
        """Close writers first."""
        self._database.close()

    def create(self, model: str, settings: dict[str, Any], title: str = "") -> str:
        """A conversation in which nobody has spoken yet; returns its new id."""
        conversation = bulk.new_id(self._database)
        with self._database.writing() as connection:
            bulk.creating(conversation, model, settings, title, time.time())(connection)
        return conversation

    def begin(self, model: str, settings: dict[str, Any]) -> Writer:
        """A conversation in which nobody has spoken yet, to write; it need not be on disk when this returns.

        Raises:
            StoreError: its lock cannot be made.
        """
        conversation = bulk.new_id(self._database)
        lock = self._places.lock(conversation)
        created = bulk.creating(conversation, model, settings, "", time.time())
        try:
            return Writer(self._database, conversation, lock, created)
        except BaseException:
            lock.release()
            raise

    def put(self, conversations: Iterable[Conversation]) -> Ids:
        """Whole conversations from elsewhere, all of them or none; their new ids.

        They count as updated now. Their messages get new numbers. Others write meanwhile; nobody sees one
        before all are there.

        Raises:
            KeyError: a parent or a leaf is none of the messages, or comes later.
        """
        whole = list(conversations)
        bulk.sweep(self._database, self._places)
        ids = [bulk.new_id(self._database) for _ in whole]
        locks = [self._places.lock(one) for one in ids]
        try:
            bulk.put(self._database, whole, ids)
        finally:
            for lock in locks:
                lock.release()
        return ids

    def find(self, wanted: str) -> str:
        """The id of a conversation by its id, the beginning of its id, or `last`.

        Raises:
            UsageError: none, or several; names those that are near.
        """
        ids = [str(row[0]) for row in self._database.rows(f"{IDS} {NEWEST_FIRST}")]
        if not ids:
            raise UsageError(f"There is no conversation in {self.folder or 'memory'} yet.")
        return find(ids, wanted)

    def list(self, limit: int | None = None) -> Summaries:
        """Newest first."""
        return self._summaries(f"{NEWEST_FIRST} LIMIT ?", -1 if limit is None else limit)

    def summary(self, conversation: str) -> Summary:
        found = self._summaries("AND id = ?", conversation)
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
        query = query_of(words)
        if not query:
            return []
        return [Hit(*row) for row in self._database.rows(SEARCH, query, limit)]

    def rename(self, conversation: str, title: str) -> None:
        if not title.strip():
            raise UsageError("The title is empty.", "Give some words: it is what lists show.")
        with self._database.writing() as connection:
            done = connection.execute(
                "UPDATE conversations SET title = ? WHERE id = ? AND NOT hidden", (clean(title), conversation)
            )
            if not done.rowcount:
                raise _unknown(conversation)

    def remove(self, conversation: str) -> None:
        """Removes it, with all its branches and saved caches; no word of it is left in the files.

        Others write meanwhile. Nobody sees it from the beginning on, also if we die before the end.

        Raises:
            BusyError: it is open.
        """
        lock = self._lock(conversation)
        try:
            bulk.hide(self._database, conversation)
            bulk.sweep(self._database, self._places, conversation)
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
        after = f"conversation = ? AND parent IS ({NUMBERED}) ORDER BY id"
        return self._messages(conversation, after, conversation, conversation, parent)

    def branches(self, conversation: str) -> dict[int, tuple[int, int]]:
        """By message in whose place others stand too: (which it is, from 1, of how many)."""
        return {number: (at, count) for number, at, count in self._database.rows(BRANCHES, conversation)}

    def messages(self, conversation: str) -> Messages:
        """All branches, parents before children."""
        self._one("id", conversation)
        return self._messages(conversation, "conversation = ? ORDER BY id", conversation)

    def caches(self, conversation: str) -> Path | None:
        """The folder of its saved caches, made when first asked for; None in memory."""
        self._one("id", conversation)
        return self._places.made_cache_folder(conversation)

    def removable_caches(self, ours: str) -> Iterator[Path]:
        """Saved caches of no conversation here, of others (held longest ago first), then of `ours`."""
        rows = self._database.rows(f"{IDS} AND id != ? ORDER BY updated", ours)
        return self._places.removable_caches([str(one) for (one,) in rows], ours)

    def claim(self, conversation: str) -> Writer:
        """Takes the conversation, to write. An answer that a dead process left is finished: `interrupted`.

        Raises:
            BusyError: somebody has it.
        """
        lock = self._lock(conversation)
        try:
            writer = Writer(self._database, conversation, lock)
            if not writer.waiting.flush(WAIT_S):
                assert writer.waiting.trouble is not None
                raise writer.waiting.trouble
            return writer
        except BaseException:
            lock.release()
            raise

    def _lock(self, conversation: str) -> Lock:
        self._one("id", conversation)
        try:
            lock = self._places.lock(conversation)
        except Held as holder:
            who = "another process" if holder.pid is None else f"process {holder.pid}"
            raise BusyError(
                f"Conversation {conversation} is open in {who}.",
                "Leave it there first, or read it:"
                f" {called()} sessions show {conversation}{data_flag(self.folder)}",
            ) from None
        try:
            self._one("id", conversation)  # it may have been removed until we held it
        except BaseException:
            lock.release()
            raise
        return lock

    def _one(self, column: str, conversation: str) -> Any:
        found = self._database.rows(
            f"SELECT {column} FROM conversations WHERE id = ? AND NOT hidden", conversation
        )
        if not found:
            raise _unknown(conversation)
        return found[0][0]

    def _summaries(self, where: str, *values: Any) -> Summaries:
        return [Summary(*row) for row in self._database.rows(f"{SUMMARY} {where}", *values)]

    def _messages(self, conversation: str, where: str, *values: Any) -> Messages:
        return read_messages(self._database, lambda: self._places.is_held(conversation), where, *values)


def conversation_ids(folder: Path, start: str = "") -> list[str]:
    """Ids that begin so, newest first, for the shell's completion: creates nothing and never raises."""
    try:
        if not (folder / DATABASE).is_file():
            return []
        where = (folder / DATABASE).absolute().as_uri() + "?mode=ro"
        connection = sqlite3.connect(where, uri=True, timeout=0.2)
        try:
            rows = connection.execute(f"{IDS} {NEWEST_FIRST}").fetchall()
        finally:
            connection.close()
    except (sqlite3.Error, OSError, ValueError):
        return []
    return [one for (one,) in rows if one.startswith(start.lower())]


def _mended(folder: Path) -> Note:
    return Note("store", f"Others could write in {folder}: that right was taken away.")


def _unknown(conversation: str) -> UsageError:
    return UsageError(f"There is no conversation {conversation!r}.", "See h2o-chat sessions list.")
