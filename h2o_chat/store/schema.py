"""The tables of the store, as a list of changes: append to it, never edit a released one.

A database is at version n (`PRAGMA user_version`) when the first n scripts have been applied to it.
"""

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

MIGRATIONS: list[str] = [CONVERSATIONS, PINS, NUMBERS, RECALLED, SOURCES, PIECES]
