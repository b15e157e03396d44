"""Lets threads compute one at a time, in turn, so that they take at most one processor from answering."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class TurnLock:
    """A lock that is granted in the order of requests."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken = self._over = 0
        """Turns that were taken, and turns that ended."""

    @contextmanager
    def one(self) -> Iterator[None]:
        """Waits for a turn and holds it inside."""
        self._wait()
        try:
            yield
        finally:
            self._end()

    def give_way(self) -> None:
        """Ends the turn and waits for the next one, after all other waiting threads."""
        self._end()
        self._wait()

    def _wait(self) -> None:
        with self._changed:
            mine, self._taken = self._taken, self._taken + 1
            self._changed.wait_for(lambda: self._over == mine)

    def _end(self) -> None:
        with self._changed:
            self._over += 1
            self._changed.notify_all()
