"""Work without a screen: it ends in order at a signal, and one line says how far reading is."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from h2o_chat.base.deadline import Deadline
from h2o_chat.base.errors import ExitCode
from h2o_chat.base.system import ENDING, handling
from h2o_chat.chat.conversation.message import progress_words
from h2o_chat.events.events import CacheState, Event, ReadSoFar


@contextmanager
def interruptible(last: Callable[[], None]) -> Iterator[Callable[[], ExitCode]]:
    """A signal of `ENDING` stops at the next step, so that the answer so far is kept; a second one does not
    wait.

    If that step does not come, the process ends within a deadline: every printed token is stored already, or
    it is said that it is not. Yields a function that returns the exit code: `OK` until there was a signal.

    Args:
        last: called just before such an end.
    """
    code = ExitCode.OK
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
    """Passes events on; meanwhile the line shows the progress of reading, and is empty before what
    follows."""
    line = _Line()
    try:
        for event in events:
            if isinstance(event, ReadSoFar):
                line.write(f"reading {progress_words(event)} · ctrl+c stops")
            elif not isinstance(event, CacheState):
                line.erase()
            yield event
    finally:
        line.erase()


class _Line:
    """The line, and how many characters of it are written."""

    def __init__(self) -> None:
        self._written = 0
        self._shown = sys.stderr.isatty()

    def write(self, text: str) -> None:
        if self._shown:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns  # those of stdout may be none
            text = text[: (columns or 80) - 1]  # a longer one would go on below
            sys.stderr.write("\r" + text.ljust(self._written))
            sys.stderr.flush()
            self._written = len(text)

    def erase(self) -> None:
        if self._written:
            self.write("")
            sys.stderr.write("\r")
            sys.stderr.flush()
            self._written = 0
