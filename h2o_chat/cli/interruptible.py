"""Work without a screen ends in order at a signal."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from h2o_chat.base.deadline import Deadline
from h2o_chat.base.errors import ExitCode
from h2o_chat.base.system import ENDING


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
    before = {int(number): signal.getsignal(number) for number in ENDING}

    def handle(number: int, _: Any) -> None:
        nonlocal code
        code = ExitCode(128 + number)
        deadline.begin(code)
        signal.signal(number, before[number])

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup, a job in the background of a shell script
            signal.signal(number, handle)
    try:
        yield lambda: code
    finally:
        deadline.call_off()
        for number, handler in before.items():
            signal.signal(number, handler)
