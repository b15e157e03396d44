"""Reads messages from the database, including the written part of unfinished answers."""

from collections.abc import Callable, Sequence
from typing import Any

from h2o_chat.store.database import Database, Rows
from h2o_chat.store.records import MESSAGE, Messages, Streamed, message_of, streamed


def read_messages(database: Database, held: Callable[[], bool], where: str, *values: Any) -> Messages:
    """The messages of some rows; an unfinished answer has the tokens streamed so far.

    Args:
        held: whether a process writes the conversation; if not, an unfinished answer is `interrupted`.
        where: an SQL condition.
        values: of the condition's parameters.
    """
    rows, partial = _read(database, where, values)
    dead = None
    if partial and not held():
        dead = "interrupted"
        rows, partial = _read(database, where, values)  # its writer may have finished and left meanwhile
    return [message_of(row, *partial[row[0]], dead) if row[-2] else message_of(row) for row in rows]


def _read(database: Database, where: str, values: Sequence[Any]) -> tuple[Rows, dict[int, Streamed]]:
    """Rows of `MESSAGE`; and by number the tokens and the text of the open ones."""
    with database.reading() as connection:
        rows = connection.execute(f"{MESSAGE} WHERE {where}", values).fetchall()
        return rows, {row[0]: streamed(connection, row[-1]) for row in rows if row[-2]}
