"""Changes of a conversation that are not on disk yet, in order: another process writes, or the disk is
full."""

import sqlite3
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock
from typing import Literal

from h2o_chat.base.errors import DiskError, StoreBusyError, StoreError
from h2o_chat.store.database import Database, Step
from h2o_chat.store.records import title_of

PATIENCE_S = 0.5  # longest wait for another process, once, before changes stay in memory
RETRY_S = 1.0  # seconds between two tries on a full disk: each costs as much as writing all that waits

Kind = Literal["message", "token", "other"]


@dataclass(frozen=True)
class Change:
    kind: Kind
    step: Step
    text: str  # text of a message; empty for other changes

    def __call__(self, connection: sqlite3.Connection) -> None:
        self.step(connection)


class Backlog:
    """Changes to be written in order; writing is tried whenever one is added. Any thread may call it.

    Args:
        held: raises StoreError if this process no longer holds the conversation.
    """

    def __init__(self, database: Database, held: Callable[[], None]) -> None:
        self.trouble: StoreError | None = None  # why changes wait; None: all are on disk
        self.trouble_since_s = 0.0  # when the trouble began, by `time.monotonic`
        self._database, self._held = database, held
        self._changes: deque[Change] = deque()
        self._threads = RLock()
        self._retry_at_s = 0.0
        self._closed = False

    def __len__(self) -> int:
        return len(self._changes)

    def add(self, kind: Kind, step: Step, text: str = "") -> None:
        """Adds a change and tries to write all; only the first failing try waits for other processes."""
        with self._threads:
            self._changes.append(Change(kind, step, text))
            if self.trouble is None:
                self.flush(PATIENCE_S)
            elif not isinstance(self.trouble, DiskError) or time.monotonic() > self._retry_at_s:
                self.flush()

    def flush(self, patience_s: float = 0.0) -> bool:
        """Tries to write all changes; returns whether none is left and the files are still those opened."""
        with self._threads:
            if self.for_good or self._closed:
                return not self._changes and self.trouble is None
            try:
                if self._changes:
                    self._database.write(self._changes, patience_s, self._held)
                else:
                    self._database.require(whole=True)
                    self._held()
                self.trouble = None
            except StoreError as error:
                if self.trouble is None:
                    self.trouble_since_s = time.monotonic()
                self.trouble = error
                self._retry_at_s = time.monotonic() + RETRY_S
            return not self._changes and self.trouble is None

    def close(self) -> None:
        """Writes nothing from here on: the conversation is released."""
        with self._threads:
            self._closed = True

    @property
    def for_good(self) -> bool:
        """Whether writing has failed finally, for example because the file is damaged."""
        return self.trouble is not None and not isinstance(self.trouble, StoreBusyError | DiskError)

    @property
    def words(self) -> str:
        """A summary for people: `2 messages (the first: 'Go on.') and 37 tokens`."""
        with self._threads:
            said = [one.text for one in self._changes if one.kind == "message"]
            tokens = sum(one.kind == "token" for one in self._changes)
        first = next((title_of(text) for text in said if text), "")
        parts = (
            [_counted(len(said), "message") + (f" (the first: {first!r})" if first else "")] if said else []
        )
        parts += [_counted(tokens, "token")] if tokens else []
        return " and ".join(parts) or "how the last answer ended"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("" if number == 1 else "s")
