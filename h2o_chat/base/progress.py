"""Progress on stderr: a bar on a terminal, otherwise a line now and then.

Long work calls back to ask whether it was cancelled and to report its share. `never` and `unheard` are the
defaults for callers that neither cancel nor show progress.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, float | None], None]
"""(stage, after a colon a detail of it; share done from 0 to 1, or None while it is not known)"""

Tick = Callable[[float], None]  # (share of the work that is done, 0 to 1)
ShouldStop = Callable[[], bool]  # long work asks now and then; True: it ends as soon as it can

REPEATED_S = 10.0  # seconds between two lines of a long stage whose share is not known
PLAIN_EVERY_S = 30  # seconds between two lines where there is no bar; shorter work prints nothing
TELL_S = 0.125  # seconds between two reports of a reading: eight a second look smooth and cost nothing


class Seldom:
    """Allows a report at most every `TELL_S` seconds, the first one `at_once` or after `TELL_S`."""

    def __init__(self, *, at_once: bool = False) -> None:
        self._told = float("-inf") if at_once else time.perf_counter()

    def due(self) -> bool:
        """Whether a report is allowed now; if so, the next one after `TELL_S`."""
        now = time.perf_counter()
        if now - self._told < TELL_S:
            return False
        self._told = now
        return True


def never() -> bool:
    """The default for `cancelled`: it never was."""
    return False


def unheard(so_far: object) -> None:
    """The default for a progress callback: ignores it."""


def part(tick: Tick, number: int, of: int) -> Tick:
    """Returns a tick for part `number` (from 0) of `of` equally long parts, scaled to all of them."""
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
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    shown = TextColumn("{task.description}"), BarColumn(24), TaskProgressColumn(), TimeRemainingColumn()
    with Bar(*shown, console=Console(stderr=True), transient=True) as bar:  # rate and size fit 80 columns
        task = bar.add_task("", total=None)

        def report(stage: str, share: float | None) -> None:
            bar.update(task, description=stage, total=None if share is None else 1.0, completed=share or 0.0)

        yield report


class _Plain:
    """Lines on stderr, until `over` is set."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self._doing, self._told, self._began = "", 0.0, time.monotonic()
        self._repeating = False

    def report(self, stage: str, share: float | None) -> None:
        """See `Progress`. A stage with a detail but no share is printed at once and every REPEATED_S."""
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
