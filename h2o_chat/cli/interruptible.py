"""Work without a screen: it ends in order at a signal, and a bar says how far reading is."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from h2o_chat.base.deadline import Deadline
from h2o_chat.base.errors import ExitCode
from h2o_chat.base.progress import Progress, progress_bar
from h2o_chat.base.system import ENDING, handling
from h2o_chat.events.events import CacheState, Event, ReadSoFar


@contextmanager
def interruptible(kept: Callable[[], str]) -> Iterator[Callable[[], ExitCode]]:
    """A signal of `ENDING` stops at the next step, so that the answer so far is kept; a second one does not
    wait.

    If that step does not come, the process ends within a deadline: every printed token is stored already, or
    it is said that it is not. Yields a function that returns the exit code: `OK` until there was a signal.

    Args:
        kept: asked just before such an end; says what is kept.
    """
    code = ExitCode.OK

    def last() -> None:
        said = f"h2o-chat: ended in the middle of a step that took too long; {kept()}\n"
        os.write(2, said.encode())  # sys.stderr may be held by what is stuck

    deadline = Deadline(last)
    before = {int(number): signal.getsignal(number) for number in ENDING}  # a second one does not wait

    def handle(number: int, _: Any) -> None:
        nonlocal code
        code = ExitCode(128 + number)
        deadline.begin(code)
        signal.signal(number, before[number])

    try:
        with handling(handle):
            yield lambda: code
    finally:
        deadline.call_off()


def with_progress(events: Iterator[Event]) -> Iterator[Event]:
    """Passes events on; on a terminal a bar on stderr shows the progress of reading, and is gone before what
    follows."""
    with ExitStack() as bar:
        progress: Progress | None = None
        for event in events:
            if isinstance(event, ReadSoFar) and sys.stderr.isatty():
                progress = progress or bar.enter_context(progress_bar())
                progress(f"reading {event.tokens:,} of {event.of:,} tokens", event.tokens / max(1, event.of))
            elif not isinstance(event, CacheState | ReadSoFar):
                bar.close()
                progress = None
            yield event
