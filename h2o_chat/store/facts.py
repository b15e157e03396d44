"""Facts that the user had remembered for all conversations, and what was said in other ones.

A text that is empty or too long, and a number that no fact has, raise UsageError.
"""

import time
from dataclasses import dataclass

from h2o_chat.base.errors import UsageError
from h2o_chat.store.database import Database
from h2o_chat.store.records import clean

FACT_CHARACTERS = 1000  # the longest fact
_SHOWN = (
    "FROM facts WHERE conversation IS NULL OR conversation IN (SELECT id FROM conversations WHERE NOT hidden)"
)


@dataclass(frozen=True)
class Fact:
    number: int
    text: str
    created: float  # seconds since 1970
    conversation: str | None  # the conversation whose message it was; None: it was typed


@dataclass(frozen=True)
class SaidElsewhere:
    conversation: str
    title: str
    created: float  # seconds since 1970
    text: str


class Facts:
    """The facts of one data folder. They are lost with the conversation that they come from."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[Fact]:
        """All facts, the oldest first."""
        rows = self._database.rows(f"SELECT id, text, created, conversation {_SHOWN} ORDER BY id")
        return [Fact(*row) for row in rows]

    def add(self, text: str, conversation: str | None = None) -> Fact:
        """Remembers a text, said in `conversation` or typed; one that is there already stays as it is."""
        text = _checked(text)
        if same := next((one for one in self.all() if one.text == text), None):
            return same
        now = time.time()
        with self._database.writing() as connection:
            sql = "INSERT INTO facts (text, created, conversation) VALUES (?, ?, ?)"
            number = connection.execute(sql, (text, now, conversation)).lastrowid
        assert number is not None
        return Fact(number, text, now, conversation)

    def change(self, number: int, text: str) -> None:
        self._write("UPDATE facts SET text = ? WHERE id = ?", _checked(text), number)

    def remove(self, number: int) -> None:
        self._write("DELETE FROM facts WHERE id = ?", number)

    def said_elsewhere(self, conversation: str | None, limit: int) -> list[SaidElsewhere]:
        """The newest messages of the user in other conversations, the oldest first."""
        rows = self._database.rows(
            "SELECT conversations.id, title, messages.created, text FROM messages JOIN conversations"
            " ON conversations.id = conversation WHERE role = 'user' AND NOT hidden AND conversation IS NOT ?"
            " ORDER BY messages.id DESC LIMIT ?",
            *(conversation, limit),
        )
        return [SaidElsewhere(*row) for row in reversed(rows)]

    def _write(self, sql: str, *values: str | int) -> None:
        with self._database.writing() as connection:
            if not connection.execute(sql, values).rowcount:
                raise UsageError(f"There is no fact {values[-1]}.", "h2o-chat memory list shows them.")


def _checked(text: str) -> str:
    text = clean(" ".join(text.split()))
    if not text:
        raise UsageError("There is nothing to remember.", "Give some words.")
    if len(text) > FACT_CHARACTERS:
        raise UsageError(f"The fact has {len(text):,} characters: {FACT_CHARACTERS:,} is the most.")
    return text
