"""Imports and removes whole conversations in short transactions, so that others can write meanwhile.

The conversation is hidden and locked until the end. If the process dies before, it stays hidden, and the next
import or removal erases it. All functions raise StoreError if the file cannot be written.
"""

import contextlib
import json
import secrets
import time
from base64 import b32encode
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from h2o_chat.store.data_folder import DataFolder, Held
from h2o_chat.store.database import LONG_WAIT_S, Database, Step
from h2o_chat.store.records import Conversation, Ids, clean, insert_message

DELETED_AT_ONCE = 20  # messages deleted in one step: some milliseconds


def new_id(database: Database) -> str:
    """An id that no conversation has."""
    while True:
        conversation = b32encode(secrets.token_bytes(5)).decode().lower()
        if not database.rows("SELECT 1 FROM conversations WHERE id = ?", conversation):
            return conversation


def creating(
    conversation: str, model: str, settings: dict[str, Any], title: str, created: float, hidden: bool = False
) -> Step:
    """A step that creates an empty conversation."""
    row = (conversation, clean(title), clean(model), json.dumps(settings), created, time.time(), hidden)
    insert = (
        "INSERT INTO conversations (id, title, model, settings, created, updated, hidden)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)"
    )
    return lambda connection: connection.execute(insert, row)


def put(database: Database, conversations: Sequence[Conversation], ids: Ids) -> None:
    """Writes whole conversations under new ids, whose locks are held; they become visible together."""
    steps: deque[Step] = deque()
    for conversation, whole in zip(ids, conversations, strict=True):
        steps.append(
            creating(conversation, whole.model, whole.settings, whole.title, whole.created, hidden=True)
        )
        steps.extend(_messages(conversation, whole))
    show = "UPDATE conversations SET hidden = 0, updated = ? WHERE id = ?"
    steps.append(lambda connection: connection.executemany(show, [(time.time(), one) for one in ids]))
    database.write(steps, LONG_WAIT_S)


def hide(database: Database, conversation: str) -> None:
    with database.writing(LONG_WAIT_S) as connection:
        connection.execute("UPDATE conversations SET hidden = 1 WHERE id = ?", (conversation,))


def erase(database: Database, conversation: str) -> None:
    """Deletes the messages of a hidden conversation, newest first, since children reference their parents.

    Its row stays, empty, until `sweep` has removed the text from the files: if the process is killed before,
    the next sweep finds it.
    """
    [[messages]] = database.rows("SELECT count(*) FROM messages WHERE conversation = ?", conversation)
    some = (
        "DELETE FROM messages WHERE id IN"
        " (SELECT id FROM messages WHERE conversation = ? ORDER BY number DESC LIMIT ?)"
    )
    steps: deque[Step] = deque()
    for _ in range(0, messages, DELETED_AT_ONCE):
        steps.append(lambda connection: connection.execute(some, (conversation, DELETED_AT_ONCE)))
    runs = "DELETE FROM runs WHERE conversation = ?"  # with the system prompt
    steps.append(lambda connection: connection.execute(runs, (conversation,)))
    empty = "UPDATE conversations SET title = '', settings = '{}' WHERE id = ?"
    steps.append(lambda connection: connection.execute(empty, (conversation,)))
    database.write(steps, LONG_WAIT_S)


def _messages(conversation: str, whole: Conversation) -> list[Step]:
    numbers: dict[int | None, int | None] = {None: None}
    steps: list[Step] = []
    for number, message in enumerate(whole.messages, 1):
        row = replace(message, id=number, parent=numbers[message.parent], recalled=())
        steps.append(partial(insert_message, conversation=conversation, message=row))
        numbers[message.id] = number
    leaf = numbers[whole.leaf]
    update = "UPDATE conversations SET leaf = ? WHERE id = ?"
    steps.append(lambda connection: connection.execute(update, (leaf, conversation)))
    return steps


def sweep(database: Database, data_folder: DataFolder, ours: str = "") -> None:
    """Erases hidden conversations that no process holds, and `ours`, from the tables and the files."""
    with contextlib.ExitStack() as locks:
        erased = []
        # Those being imported or removed, perhaps by a process that has died.
        for (conversation,) in database.rows("SELECT id FROM conversations WHERE hidden"):
            if conversation != ours:
                try:
                    locks.callback(data_folder.lock(conversation).release)
                except Held:
                    continue
            erase(database, conversation)
            data_folder.remove_caches(conversation)
            erased.append((conversation,))
        if erased:
            database.forget_removed()
            with database.writing(LONG_WAIT_S) as connection:
                connection.executemany("DELETE FROM conversations WHERE id = ?", erased)
