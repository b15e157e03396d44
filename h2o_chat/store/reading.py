"""Messages as they are read from the database, with what is there of answers that are not finished."""

from collections.abc import Callable, Sequence
from typing import Any

from h2o_chat.store.database import Database, Rows
from h2o_chat.store.rows import MESSAGE, Messages, Streamed, message_of, streamed


def read_messages(database: Database, held: Callable[[], bool], where: str, *values: Any) -> Messages:
    """Rows as messages; where an answer is not finished, what was streamed of it.

    Args:
        held: whether somebody writes the conversation; else such an answer is `interrupted`.
    """
    rows, partial = _read(database, where, values)
    dead = None
    if partial and not held():
        dead = "interrupted"
        rows, partial = _read(database, where, values)  # its writer may have finished and left meanwhile
    return [message_of(row, *partial[row[0]], dead) if row[-2] else message_of(row) for row in rows]


def _read(database: Database, where: str, values: Sequence[Any]) -> tuple[Rows, dict[int, Streamed]]:
    """Rows of `MESSAGE`, and by number the tokens and the text of those that are open."""
    with database.reading() as connection:
        rows = connection.execute(f"{MESSAGE} WHERE {where}", values).fetchall()
        return rows, {row[0]: streamed(connection, row[-1]) for row in rows if row[-2]}
