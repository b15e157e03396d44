"""How far something is, on stderr: a bar, or where that is no terminal a line now and then.

What takes long asks now and then whether it was cancelled, and tells its share; `never` and `unheard` are
for who does neither.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, float | None], None]
"""(what is being done, after a colon how far that is; share done 0..1 or None while nobody can tell)"""

Tick = Callable[[float], None]
"""(share of the work that is done, 0..1)"""

REPEATED_S = 10.0
"""Seconds between two lines of what can tell no share, and is known to take long."""
PLAIN_EVERY_S = 30
"""Seconds between two lines where there is no bar; what is done sooner says nothing."""


TELL_S = 0.125
"""Seconds between two words about what is read: eight a second move, and cost nothing."""


class Seldom:
    """Lets something be told at most every `TELL_S`.

    Args:
        at_once: the first time, too; else `TELL_S` after this was made.
    """

    def __init__(self, *, at_once: bool = False) -> None:
        self._told = float("-inf") if at_once else time.perf_counter()

    def due(self) -> bool:
        """Whether it may be told now; then not again so soon."""
        now = time.perf_counter()
        if now - self._told < TELL_S:
            return False
        self._told = now
        return True


def never() -> bool:
    """Nobody cancels."""
    return False


def unheard(so_far: object) -> None:
    """Nobody asks how far it is."""


def part(tick: Tick, number: int, of: int) -> Tick:
    """For the work `number` (from 0) of so many equally long ones: tells its share as a share of all."""
    return lambda share: tick((number + share) / of)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Reports to a bar on stderr if that is a terminal, else in plain lines."""
    if not sys.stderr.isatty():
        plain = _Plain()
        try:
            yield plain.report
        finally:
            plain.over.set()
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def report(stage: str, share: float | None) -> None:
            bar.update(task, description=stage, total=None if share is None else 1.0, completed=share or 0.0)

        yield report


class _Plain:
    """Lines on stderr.

    Attributes:
        over: Set when there is nothing more to tell.
    """

    def __init__(self) -> None:
        self.over = threading.Event()
        self._doing, self._told, self._began = "", 0.0, time.monotonic()
        self._repeating = False

    def report(self, stage: str, share: float | None) -> None:
        """See `Progress`. What tells no share but why it takes long is told at once, and again."""
        what, _, why = stage.partition(":")
        if what != self._doing:  # it has only begun, however long the one before took
            self._doing, self._told = what, time.monotonic()
            if share is None and why and not self._repeating:
                self._repeating = True
                sys.stderr.write(f"h2o-chat: {stage}\n")
                threading.Thread(target=self._repeat, name="progress", daemon=True).start()
        elif share is not None and time.monotonic() - self._told >= PLAIN_EVERY_S:
            self._told = time.monotonic()
            sys.stderr.write(f"{stage}: {share:.0%}\n")

    def _repeat(self) -> None:
        while not self.over.wait(REPEATED_S):
            sys.stderr.write(f"{self._doing}: {time.monotonic() - self._began:.0f} s\n")
