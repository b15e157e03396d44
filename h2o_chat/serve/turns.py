"""Threads that compute one at a time, in turn: so none takes more than one processor from what answers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Who came first is next."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken = self._over = 0
        """Turns so far."""

    @contextmanager
    def one(self) -> Iterator[None]:
        """Waits for a turn, and has it."""
        self._wait()
        try:
            yield
        finally:
            self._end()

    def give_way(self) -> None:
        """Ends a turn, and waits for the next one: all others that wait have one before."""
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
