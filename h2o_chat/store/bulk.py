"""Imports and removes whole conversations, in one transaction each: all of it, or nothing.

Others wait meanwhile, a second for 30,000 messages: what is said there waits in memory (`backlog.py`). All
functions raise StoreError if the file cannot be written.
"""

import json
import secrets
import sqlite3
import time
from base64 import b32encode
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from h2o_chat.store.data_folder import DataFolder
from h2o_chat.store.database import LONG_WAIT_S, Database
from h2o_chat.store.records import Conversation, Ids, clean, insert_message


def new_id(database: Database) -> str:
    """An id that no conversation has."""
    while True:
        conversation = b32encode(secrets.token_bytes(5)).decode().lower()
        if not database.rows("SELECT 1 FROM conversations WHERE id = ?", conversation):
            return conversation


def create(
    connection: sqlite3.Connection,
    conversation: str,
    model: str,
    settings: dict[str, Any],
    title: str,
    created: float,
) -> None:
    """Creates an empty conversation."""
    connection.execute(
        "INSERT INTO conversations (id, title, model, settings, created, updated) VALUES (?, ?, ?, ?, ?, ?)",
        (conversation, clean(title), clean(model), json.dumps(settings), created, time.time()),
    )


def put(database: Database, conversations: Iterable[Conversation]) -> Ids:
    """Writes whole conversations under new ids.

    Raises:
        KeyError: a parent or a leaf is not one of the messages, or comes later.
    """
    ids = []
    with database.writing(LONG_WAIT_S) as connection:
        for whole in conversations:
            ids.append(conversation := new_id(database))
            create(connection, conversation, whole.model, whole.settings, whole.title, whole.created)
            numbers: dict[int | None, int | None] = {None: None}
            for number, message in enumerate(whole.messages, 1):
                row = replace(message, id=number, parent=numbers[message.parent], recalled=())
                insert_message(connection, conversation, row)
                numbers[message.id] = number
            update = "UPDATE conversations SET leaf = ? WHERE id = ?"
            connection.execute(update, (numbers[whole.leaf], conversation))
    return ids


def remove(database: Database, data_folder: DataFolder, conversation: str) -> None:
    """Removes a conversation from the tables, and its text and saved caches from the files.

    An empty row that nobody sees stays until its text is out of the files: if the process is killed before,
    the next removal or import ends it. Earlier versions left such rows with messages.
    """
    with database.writing(LONG_WAIT_S) as connection:
        connection.execute("UPDATE conversations SET hidden = 1 WHERE id = ?", (conversation,))
    sweep(database, data_folder)


def sweep(database: Database, data_folder: DataFolder) -> None:
    """Takes hidden conversations out of the tables and the files."""
    hidden = database.rows("SELECT id FROM conversations WHERE hidden")
    if not hidden:
        return
    with database.writing(LONG_WAIT_S) as connection:
        for sql in (
            "DELETE FROM messages WHERE conversation = ?",
            "DELETE FROM runs WHERE conversation = ?",  # with the system prompt
            "UPDATE conversations SET title = '', settings = '{}' WHERE id = ?",
        ):
            connection.executemany(sql, hidden)
    for (conversation,) in hidden:
        data_folder.remove_caches(conversation)
    database.forget_removed()
    with database.writing(LONG_WAIT_S) as connection:
        connection.executemany("DELETE FROM conversations WHERE id = ?", hidden)
