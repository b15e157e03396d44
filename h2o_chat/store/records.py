"""The tables of the store, its records, and the SQL that reads and writes them."""

import json
import re
import sqlite3
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from h2o_chat.base.utf8 import decoded, encoded

CONVERSATIONS = """
CREATE TABLE conversations (
    id TEXT NOT NULL PRIMARY KEY,
    title TEXT NOT NULL,
    model TEXT NOT NULL,
    settings TEXT NOT NULL,      -- JSON
    created REAL NOT NULL,       -- seconds since 1970
    updated REAL NOT NULL,
    leaf INTEGER                 -- the active branch ends here; set with every message, so no reference
);

CREATE TABLE messages (
    -- AUTOINCREMENT: files are named after messages, so a number must never come again
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    parent INTEGER REFERENCES messages (id) CHECK (parent < id),
    role TEXT NOT NULL,
    open INTEGER NOT NULL DEFAULT 0,    -- 1 while its tokens stand in `stream`
    finish TEXT,
    first INTEGER NOT NULL DEFAULT -1,  -- positions of its tokens
    last INTEGER NOT NULL DEFAULT -1,
    created REAL NOT NULL,
    tokens INTEGER NOT NULL DEFAULT 0,  -- how many ids, so that counting them reads no blob
    text TEXT NOT NULL DEFAULT '',
    ids BLOB NOT NULL DEFAULT x''       -- int32, little-endian
);
CREATE INDEX messages_of ON messages (conversation, tokens);
CREATE INDEX messages_after ON messages (parent);

-- The answer that is being written: a row per token, so that a token costs the same at any length.
CREATE TABLE stream (
    message INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    token INTEGER NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (message, number)
) WITHOUT ROWID;

CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    started REAL NOT NULL,
    session TEXT NOT NULL        -- JSON: model, versions, settings
);
CREATE INDEX runs_of ON runs (conversation);

CREATE VIEW finished AS SELECT id, text FROM messages WHERE NOT open;
CREATE VIRTUAL TABLE words USING fts5 (
    text, content = 'finished', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
);
CREATE TRIGGER message_said AFTER INSERT ON messages WHEN NOT new.open BEGIN
    INSERT INTO words (rowid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER message_finished AFTER UPDATE OF open ON messages WHEN old.open AND NOT new.open BEGIN
    INSERT INTO words (rowid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER message_removed AFTER DELETE ON messages WHEN NOT old.open BEGIN
    INSERT INTO words (words, rowid, text) VALUES ('delete', old.id, old.text);
END;
"""

PINS = "ALTER TABLE messages ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;"

NUMBERS = """
-- A message is known by its number within its conversation: whoever holds that knows the next one, also while
-- another process writes. `id`, `parent` and `stream.message` stay what they were, and are seen by SQL alone.
ALTER TABLE messages ADD COLUMN number INTEGER NOT NULL DEFAULT 0;
UPDATE messages SET number = id;
CREATE UNIQUE INDEX messages_numbered ON messages (conversation, number);
-- 1 while it is imported, or removed, in many short transactions: then nobody sees it.
ALTER TABLE conversations ADD COLUMN hidden INTEGER NOT NULL DEFAULT 0;
"""

RECALLED = """
-- Words that the model was told again in front of a message, and the number of the message they come from.
ALTER TABLE messages ADD COLUMN recalled TEXT NOT NULL DEFAULT '';
ALTER TABLE messages ADD COLUMN recalled_from INTEGER;
"""

SOURCES = """
-- Words that an answer rested on, and the number of the message that has them. '': on none; NULL: not known.
ALTER TABLE messages ADD COLUMN source TEXT;
ALTER TABLE messages ADD COLUMN source_from INTEGER;
"""

PIECES = """
-- What the model read once more with a message: '', or JSON [[number of their message, words], ...].
-- `recalled_from`, `source` and `source_from` are not read since.
UPDATE messages SET recalled = json_array(json_array(recalled_from, recalled)) WHERE recalled != '';
"""

FACTS = """
-- What the user had remembered for all conversations; `conversation`: the one whose message it was.
CREATE TABLE facts (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    text TEXT NOT NULL,
    created REAL NOT NULL,
    conversation TEXT REFERENCES conversations (id) ON DELETE CASCADE
);
CREATE INDEX facts_of ON facts (conversation);
"""

MIGRATIONS: list[str] = [CONVERSATIONS, PINS, NUMBERS, RECALLED, SOURCES, PIECES, FACTS]
"""Changes of the tables: append to it, never edit a released one.

A database is at version n (`PRAGMA user_version`) when the first n scripts have been applied to it.
"""


TITLE_CHARACTERS = 60
_FILE = re.compile(r"(?=[^\n]*[./])[^\n]+:\n(`{3,})\n.*?\n\1\n\n", re.DOTALL)
"""A file that was sent along, as `chat/files/attached.py` writes it."""


@dataclass(frozen=True)
class Summary:
    """One line of the list of conversations."""

    id: str
    title: str
    model: str
    created: float  # seconds since 1970, like all times here
    updated: float  # time of the last message
    messages: int  # number of messages in all branches
    tokens: int | None  # in all branches; None: not known, as some imported messages were never read


@dataclass(frozen=True)
class StoredMessage:
    id: int  # its number in its conversation; later messages have larger ones
    parent: int | None  # the number of the message it follows
    role: str  # system | user | assistant
    text: str
    finish: str | None = None
    """One of `events.Finish`; `interrupted`: the process died while it streamed. None: not an answer, or it
    is streaming."""
    first: int = -1  # position of its first token; -1 while none was fed
    last: int = -1
    ids: tuple[int, ...] = ()  # tokens fed (what the template added included) or generated
    created: float = 0.0
    pinned: bool = False  # the user protected its tokens from eviction
    recalled: "Pieces" = ()  # pieces that the model read once more with it; their tokens are part of `ids`


@dataclass(frozen=True)
class Conversation:
    """A whole conversation, for export and import."""

    id: str  # empty if it is not stored yet
    title: str
    model: str
    settings: dict[str, Any]
    created: float
    updated: float
    leaf: int | None  # the end of the active branch
    messages: list[StoredMessage]  # messages of all branches, parents before their children

    def branch(self) -> list[StoredMessage]:
        """The active one, from its beginning."""
        by_id = {message.id: message for message in self.messages}
        found: list[StoredMessage] = []
        at = self.leaf
        while at is not None and at in by_id:  # it may have been withdrawn meanwhile
            found.append(by_id[at])
            at = by_id[at].parent
        return found[::-1]


@dataclass(frozen=True)
class Hit:
    """A message in which words were found."""

    conversation: str
    title: str
    message: int  # its number in its conversation
    role: str
    snippet: str  # words around the first hits, which are marked « and »


Pieces = tuple[tuple[int | None, str], ...]
"""(number of the message they come from, words), in the order in which they were said."""

# Named here: inside `Store`, `list` is a method.
Summaries = list[Summary]
Messages = list[StoredMessage]
Hits = list[Hit]
Ids = list[str]
Streamed = tuple[list[int], str]

IDS = "SELECT id FROM conversations WHERE NOT hidden"
NEWEST_FIRST = "ORDER BY updated DESC, rowid DESC"

# The tokens of imported messages are not known; those of a system prompt are part of the next message.
# Tokens of unfinished answers are counted once for all conversations: they are few.
SUMMARY = """
WITH streaming (conversation, tokens) AS (
    SELECT conversation, count(*) FROM stream JOIN messages ON messages.id = message GROUP BY conversation
)
SELECT id, title, model, created, updated,
    (SELECT count(*) FROM messages WHERE conversation = conversations.id),
    CASE WHEN EXISTS (
        SELECT 1 FROM messages
        WHERE conversation = conversations.id AND tokens = 0 AND role != 'system' AND text != '' AND NOT open
    ) THEN NULL ELSE
        (SELECT coalesce(sum(tokens), 0) FROM messages WHERE conversation = conversations.id)
        + coalesce((SELECT tokens FROM streaming WHERE conversation = conversations.id), 0)
    END
FROM conversations WHERE NOT hidden"""

MESSAGE = """
SELECT number, (SELECT number FROM messages AS before WHERE before.id = messages.parent),
    role, text, finish, first, last, ids, created, pinned, recalled, open, id
FROM messages"""

NUMBERED = "SELECT id FROM messages WHERE conversation = ? AND number = ?"

BRANCHES = """
WITH places (number, place, places) AS (
    SELECT number, row_number() OVER (PARTITION BY parent ORDER BY id), count(*) OVER (PARTITION BY parent)
    FROM messages WHERE conversation = ?
) SELECT number, place, places FROM places WHERE places > 1"""

BRANCH = """
WITH RECURSIVE branch (id) AS (
    SELECT id FROM messages WHERE number = ? AND conversation = ?
    UNION SELECT parent FROM messages JOIN branch USING (id) WHERE parent IS NOT NULL
) SELECT id FROM branch"""

# CROSS JOIN makes SQLite walk the index of words, newest first, and stop at the limit.
SEARCH = """
SELECT conversation, title, number, role, snippet(words, 0, '«', '»', '…', 12)
FROM words CROSS JOIN messages ON messages.id = words.rowid
    CROSS JOIN conversations ON conversations.id = messages.conversation
WHERE words MATCH ? AND NOT hidden ORDER BY words.rowid DESC LIMIT ?"""


def clean(text: str) -> str:
    """Replaces lone surrogates, which UTF-8 cannot encode, by `?`, as `events.to_json` does."""
    try:
        for _ in encoded(text):
            pass
    except UnicodeEncodeError:
        return decoded(b"".join(encoded(text, "replace")))
    return text


def pack(ids: Sequence[int]) -> bytes:
    """Token ids as int32, little-endian."""
    return struct.pack(f"<{len(ids)}i", *ids)


def unpack(blob: bytes) -> tuple[int, ...]:
    """Token ids of a blob; of a damaged one, the whole numbers that are left."""
    whole = len(blob) // 4
    return struct.unpack(f"<{whole}i", blob[: 4 * whole])


def query_of(words: str) -> str:
    """An FTS5 query for all words; the last may be the beginning of one.

    Words are quoted, so that none is an operator; a NUL would end the query. One Latin letter only matches a
    whole word: as a beginning it would match nearly everything.
    """
    terms = clean(words).replace("\0", " ").replace('"', " ").split()[:50]
    begun = terms and (len(terms[-1]) > 1 or not terms[-1].isascii())
    return " ".join(f'"{term}"' for term in terms) + ("*" if begun else "")


def title_of(text: str) -> str:
    """The beginning of a message, on one line; what was typed stands behind the files sent along with it."""
    start = 0
    while (file := _FILE.match(text, start)) and file.end() < len(text):
        start = file.end()
    words = " ".join(clean(text[start:].lstrip()[: 4 * TITLE_CHARACTERS]).split())
    return words if len(words) <= TITLE_CHARACTERS else words[: TITLE_CHARACTERS - 1].rstrip() + "…"


def streamed(connection: sqlite3.Connection, message: int) -> Streamed:
    """Tokens and text of an open answer, as far as they were written."""
    sql = "SELECT token, text FROM stream WHERE message = ? ORDER BY number"
    rows = connection.execute(sql, (message,)).fetchall()
    return [int(token) for token, _ in rows], "".join(str(text) for _, text in rows)


def insert_message(
    connection: sqlite3.Connection, conversation: str, message: StoredMessage, *, open: bool = False
) -> None:
    """Adds a message, whose number is larger than all before; `open`: its tokens follow."""
    number, parent, ids = message.id, message.parent, message.ids
    connection.execute(
        "INSERT INTO messages (conversation, number, parent, role, open, finish, first, last, created,"
        " tokens, text, ids, pinned, recalled)"
        " VALUES (?, ?, (SELECT id FROM messages WHERE conversation = ? AND number = ?),"
        " ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(conversation, number, conversation, parent, message.role, open, message.finish),
            *(message.first, message.last, message.created),
            *(len(ids), clean(message.text), pack(ids), message.pinned, _written(message.recalled)),
        ),
    )


def message_of(
    row: Sequence[Any], ids: Sequence[int] | None = None, text: str = "", dead: str | None = None
) -> StoredMessage:
    """The message of a row of `MESSAGE`.

    Args:
        ids, text, dead: of an unfinished answer: its streamed tokens, their text, and its `finish`.
    """
    number, parent, role, whole, finish, first, last, blob, created, pinned, *more = row
    if ids is None:
        ids, text, dead = unpack(blob), whole, finish
    place = first, last, tuple(ids), created
    return StoredMessage(number, parent, role, text, dead, *place, bool(pinned), _pieces(more[0]))


def _written(recalled: Pieces) -> str:
    return json.dumps([[number, clean(words)] for number, words in recalled]) if recalled else ""


def _pieces(written: str) -> Pieces:
    """The reverse of `_written`; text that is not JSON becomes one piece."""
    try:
        return tuple((number, str(words)) for number, words in json.loads(written or "[]"))
    except (ValueError, TypeError):
        return ((None, written),)
