"""What was told about a conversation and is not on disk yet, in order.

It waits while another process writes, and while the disk is full.
"""

import sqlite3
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock
from typing import Literal

from h2o_chat.base.errors import DiskError, StoreBusyError, StoreError
from h2o_chat.store.database import Database, Step
from h2o_chat.store.rows import title_of

PATIENCE_S = 0.5
"""How long another process is waited for, once, before words are left standing in memory."""
RETRY_S = 1.0
"""Between two tries on a disk that is full: each costs as much as all that waits."""

Kind = Literal["message", "token", "else"]


@dataclass(frozen=True)
class Told:
    """Something told, and how it is written."""

    kind: Kind
    step: Step
    text: str
    """Of a message."""

    def __call__(self, connection: sqlite3.Connection) -> None:
        self.step(connection)


class Waiting:
    """A list of what is to be written, tried again whenever something is added. Any thread may call it.

    Args:
        held: raises StoreError where the conversation is no longer ours to write.
    """

    def __init__(self, database: Database, held: Callable[[], None]) -> None:
        self.trouble: StoreError | None = None
        """Why something waits; None: all is on disk."""
        self.trouble_since_s = 0.0
        """When that began, by `time.monotonic`."""
        self._database, self._held = database, held
        self._told: deque[Told] = deque()
        self._threads = RLock()
        self._retry_at_s = 0.0
        self._closed = False

    def __len__(self) -> int:
        return len(self._told)

    def add(self, kind: Kind, step: Step, text: str = "") -> None:
        """Writes it, behind what waits; only the first time that this does not work does it cost time."""
        with self._threads:
            self._told.append(Told(kind, step, text))
            if self.trouble is None:
                self.flush(PATIENCE_S)
            elif not isinstance(self.trouble, DiskError) or time.monotonic() > self._retry_at_s:
                self.flush()

    def flush(self, patience_s: float = 0.0) -> bool:
        """Tries to write all of it; whether nothing is left, and what was written stands where it should.

        Args:
            patience_s: how long another process is waited for.
        """
        with self._threads:
            if self.for_good or self._closed:
                return not self._told and self.trouble is None
            try:
                if self._told:
                    self._database.write(self._told, patience_s, self._held)
                else:
                    self._database.require(whole=True)
                    self._held()
                self.trouble = None
            except StoreError as error:
                if self.trouble is None:
                    self.trouble_since_s = time.monotonic()
                self.trouble = error
                self._retry_at_s = time.monotonic() + RETRY_S
            return not self._told and self.trouble is None

    def close(self) -> None:
        """From here on nothing is written: the conversation is no longer ours."""
        with self._threads:
            self._closed = True

    @property
    def for_good(self) -> bool:
        """Whether nothing will be written any more: the file is damaged, say."""
        return self.trouble is not None and not isinstance(self.trouble, StoreBusyError | DiskError)

    @property
    def words(self) -> str:
        """What it is: `2 messages (the first: 'Go on.') and 37 tokens`."""
        with self._threads:
            said = [one.text for one in self._told if one.kind == "message"]
            tokens = sum(one.kind == "token" for one in self._told)
        first = next((title_of(text) for text in said if text), "")
        parts = (
            [_counted(len(said), "message") + (f" (the first: {first!r})" if first else "")] if said else []
        )
        parts += [_counted(tokens, "token")] if tokens else []
        return " and ".join(parts) or "how the last answer ended"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")
