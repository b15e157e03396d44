"""Conversations on disk: one SQLite database; a lock and a folder of saved caches for each conversation.

Messages form a tree: editing adds a sibling, nothing is overwritten. Any process may read; the one that
writes holds the conversation (`claim`) until `Writer.close` or its death.
"""

import contextlib
import difflib
import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from h2o_chat.base.errors import BusyError, StoreError, UsageError
from h2o_chat.base.private_files import own_folder
from h2o_chat.base.program_name import data_flag, program_name
from h2o_chat.events.events import Note
from h2o_chat.store import bulk, records
from h2o_chat.store.data_folder import DataFolder, Held, Lock
from h2o_chat.store.database import WAIT_S, Database, Rows
from h2o_chat.store.facts import Facts
from h2o_chat.store.records import Conversation, Hit, Hits, Ids, Messages, Streamed, Summaries, Summary
from h2o_chat.store.store_errors import explained
from h2o_chat.store.writer import Writer

DATABASE = "conversations.db"


class Store:
    """All conversations of one data folder. Any thread may call it; see `database.py`.

    Args:
        folder: created, for its owner alone, if it does not exist. None: the store is in memory.

    Raises:
        StoreError: here and in every method: the files cannot be read or written.
        UsageError: in every method with a conversation: it does not exist.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.notes: list[Note] = []  # for the user, about the folder
        if folder is not None:
            with explained(folder):
                if own_folder(folder):
                    text = f"Others could write in {folder}: that right was taken away."
                    self.notes.append(Note("store", text))
        self._database = Database(folder and folder / DATABASE)
        self.facts = Facts(self._database)
        self._data_folder = DataFolder(folder)

    def empty_log(self) -> None:
        """Writes the log into the database, if possible; on a full disk the log stays."""
        with contextlib.suppress(StoreError):  # nothing is lost: the log is on disk
            self._database.empty_log()

    def close(self) -> None:
        self._database.close()

    def begin(self, model: str, settings: dict[str, Any]) -> Writer:
        """Creates an empty conversation and holds it; it may not be on disk yet when this returns."""
        conversation = bulk.new_id(self._database)
        lock = self._data_folder.lock(conversation)
        created = bulk.creating(conversation, model, settings, "", time.time())
        try:
            return Writer(self._database, conversation, lock, created)
        except BaseException:
            lock.release()
            raise

    def put(self, conversations: Iterable[Conversation]) -> Ids:
        """Imports whole conversations, all or none, and returns their new ids.

        They count as updated now, and their messages get new numbers. Others can write meanwhile; the
        conversations become visible together at the end.

        Raises:
            KeyError: a parent or a leaf is not one of the messages, or comes later.
        """
        whole = list(conversations)
        bulk.sweep(self._database, self._data_folder)
        ids = [bulk.new_id(self._database) for _ in whole]
        with contextlib.ExitStack() as locks:
            for one in ids:
                locks.callback(self._data_folder.lock(one).release)
            bulk.put(self._database, whole, ids)
        return ids

    def find(self, wanted: str) -> str:
        """The id of a conversation by its id, the beginning of its id, or `last`.

        Raises:
            UsageError: it means none or several; names similar ones.
        """
        ids = [str(row[0]) for row in self._database.rows(f"{records.IDS} {records.NEWEST_FIRST}")]
        if not ids:
            raise UsageError(f"There is no conversation in {self.folder or 'memory'} yet.")
        return _find(ids, wanted)

    def list(self, limit: int | None = None) -> Summaries:
        """Summaries of the conversations, newest first."""
        return self._summaries(f"{records.NEWEST_FIRST} LIMIT ?", -1 if limit is None else limit)

    def summary(self, conversation: str) -> Summary:
        found = self._summaries("AND id = ?", conversation)
        if not found:
            raise _unknown(conversation)
        return found[0]

    def settings(self, conversation: str) -> dict[str, Any]:
        try:
            settings: dict[str, Any] = json.loads(self._one("settings", conversation))
        except (ValueError, TypeError, RecursionError) as error:
            raise StoreError(f"The settings of conversation {conversation} are damaged: {error}.") from error
        return settings if isinstance(settings, dict) else {}

    def last_run(self, conversation: str) -> dict[str, Any]:
        """The session with which it was last opened; empty if it never was."""
        rows = self._database.rows(
            "SELECT session FROM runs WHERE conversation = ? ORDER BY id DESC LIMIT 1", conversation
        )
        try:
            session: dict[str, Any] = json.loads(rows[0][0]) if rows else {}
        except (ValueError, TypeError, RecursionError):  # damaged: it is not known
            return {}
        return session if isinstance(session, dict) else {}

    def leaf(self, conversation: str) -> int | None:
        """Number of the last message of the active branch."""
        leaf: int | None = self._one("leaf", conversation)
        return leaf

    def whole(self, conversation: str) -> Conversation:
        about = self.summary(conversation)
        leaf, messages = self.leaf(conversation), self.messages(conversation)
        named, settings = (about.id, about.title, about.model), self.settings(conversation)
        return Conversation(*named, settings, about.created, about.updated, leaf, messages)

    def search(self, words: str, limit: int = 50) -> Hits:
        """Messages with all the words (the last may be the beginning of one), newest first.

        Unfinished answers are not searched, and words past the fiftieth are ignored.
        """
        query = records.query_of(words)
        if not query:
            return []
        return [Hit(*row) for row in self._database.rows(records.SEARCH, query, limit)]

    def rename(self, conversation: str, title: str) -> None:
        if not title.strip():
            raise UsageError("The title is empty.", "Give some words: it is what lists show.")
        with self._database.writing() as connection:
            done = connection.execute(
                "UPDATE conversations SET title = ? WHERE id = ? AND NOT hidden",
                (records.clean(title), conversation),
            )
            if not done.rowcount:
                raise _unknown(conversation)

    def remove(self, conversation: str) -> None:
        """Removes a conversation with its branches and saved caches, and its text from the files.

        Others can write meanwhile. It is invisible from the start, even if this process dies midway.

        Raises:
            BusyError: it is open in a process.
        """
        lock = self._lock(conversation)
        try:
            bulk.hide(self._database, conversation)
            bulk.sweep(self._database, self._data_folder, conversation)
        finally:
            lock.release()

    def path(self, conversation: str, leaf: int | None = None) -> Messages:
        """One branch from its root to `leaf`; None is the active one.

        An unfinished answer has its tokens so far, and is `interrupted` unless a process holds the
        conversation.
        """
        if leaf is None:
            leaf = self.leaf(conversation)
        return self._messages(conversation, f"id IN ({records.BRANCH}) ORDER BY id", leaf, conversation)

    def children(self, conversation: str, parent: int | None) -> Messages:
        """Messages that follow `parent` (None: first messages), in order: more than one are branches."""
        self._one("id", conversation)
        after = f"conversation = ? AND parent IS ({records.NUMBERED}) ORDER BY id"
        return self._messages(conversation, after, conversation, conversation, parent)

    def branches(self, conversation: str) -> dict[int, tuple[int, int]]:
        """(place among its siblings, from 1; their number) by message, for messages that have siblings."""
        rows = self._database.rows(records.BRANCHES, conversation)
        return {number: (at, count) for number, at, count in rows}

    def messages(self, conversation: str) -> Messages:
        """Messages of all branches, parents before children."""
        self._one("id", conversation)
        return self._messages(conversation, "conversation = ? ORDER BY id", conversation)

    def caches(self, conversation: str) -> Path | None:
        """The folder of its saved caches, created if needed; None in memory."""
        self._one("id", conversation)
        return self._data_folder.made_cache_folder(conversation)

    def removable_caches(self, ours: str) -> Iterator[Path]:
        """Saved caches that may be removed: of unknown conversations, of others (oldest first), of `ours`."""
        rows = self._database.rows(f"{records.IDS} AND id != ? ORDER BY updated", ours)
        return self._data_folder.removable_caches([str(one) for (one,) in rows], ours)

    def claim(self, conversation: str) -> Writer:
        """Holds a conversation, to write it. An answer left open by a dead process becomes `interrupted`.

        Raises:
            BusyError: another process holds it.
        """
        lock = self._lock(conversation)
        try:
            writer = Writer(self._database, conversation, lock)
            if not writer.backlog.flush(WAIT_S):
                assert writer.backlog.trouble is not None
                raise writer.backlog.trouble
            return writer
        except BaseException:
            lock.release()
            raise

    def _lock(self, conversation: str) -> Lock:
        self._one("id", conversation)
        try:
            lock = self._data_folder.lock(conversation)
        except Held as holder:
            who = "another process" if holder.pid is None else f"process {holder.pid}"
            raise BusyError(
                f"Conversation {conversation} is open in {who}.",
                "Leave it there first, or read it:"
                f" {program_name()} sessions show {conversation}{data_flag(self.folder)}",
            ) from None
        try:
            self._one("id", conversation)  # it may have been removed before we held the lock
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
        return [Summary(*row) for row in self._database.rows(f"{records.SUMMARY} {where}", *values)]

    def _messages(self, conversation: str, where: str, *values: Any) -> Messages:
        """The messages that an SQL condition names, an unfinished answer with the tokens streamed so far."""
        rows, partial = _read(self._database, where, values)
        dead = None
        if partial and not self._data_folder.is_held(conversation):
            dead = "interrupted"
            rows, partial = _read(self._database, where, values)  # its writer may just have finished
        given = [(*partial[row[0]], dead) if row[-2] else () for row in rows]
        return [records.message_of(row, *more) for row, more in zip(rows, given, strict=True)]


def _read(database: Database, where: str, values: Sequence[Any]) -> tuple[Rows, dict[int, Streamed]]:
    """Rows of `MESSAGE`; and by number the tokens and the text of the open ones."""
    with database.reading() as connection:
        rows = connection.execute(f"{records.MESSAGE} WHERE {where}", values).fetchall()
        return rows, {row[0]: records.streamed(connection, row[-1]) for row in rows if row[-2]}


def conversation_ids(folder: Path, start: str = "") -> list[str]:
    """Ids that begin with `start`, newest first, for shell completion: creates nothing and never raises."""
    ids = _glance(folder, f"{records.IDS} {records.NEWEST_FIRST}")
    return [one for one in ids if one.startswith(start.lower())]


def models_used(folder: Path) -> list[str]:
    """Models that somebody named for a conversation, the newest first; creates nothing and never raises."""
    named = "json_extract(settings, '$.model')"
    sql = f"SELECT {named} FROM conversations WHERE NOT hidden AND {named} IS NOT NULL {records.NEWEST_FIRST}"
    return list(dict.fromkeys(map(str, _glance(folder, sql))))


def _glance(folder: Path, sql: str) -> list[Any]:
    """The first column of a query; nothing where there is no database, or it cannot be read."""
    try:
        if not (folder / DATABASE).is_file():
            return []
        where = (folder / DATABASE).absolute().as_uri() + "?mode=ro"
        with contextlib.closing(sqlite3.connect(where, uri=True, timeout=0.2)) as connection:
            return [one for (one,) in connection.execute(sql)]
    except (sqlite3.Error, OSError, ValueError):
        return []


def _unknown(conversation: str) -> UsageError:
    return UsageError(f"There is no conversation {conversation!r}.", "See h2o-chat sessions list.")


def _find(ids: Sequence[str], wanted: str) -> str:
    """See `Store.find`; `ids` of all conversations, newest first, at least one."""
    low = wanted.strip().lower()
    if low in ids:
        return low
    if low == "last":
        return ids[0]
    starting = [one for one in ids if low and one.startswith(low)]
    if len(starting) == 1:
        return starting[0]
    if starting:
        several = f"{wanted!r} begins {len(starting)} ids: {_several(starting)}."
        raise UsageError(several, "Give more of it.")
    near = difflib.get_close_matches(low, ids, n=3, cutoff=0.5)
    raise UsageError(
        f"There is no conversation {wanted!r}." + (f" Near it: {_several(near)}." if near else ""),
        "h2o-chat sessions list shows them all; last is the newest.",
    )


def _several(ids: Sequence[str]) -> str:
    return ", ".join(ids[:5]) + (", ..." if len(ids) > 5 else "")
