"""The end of a process that somebody leaves comes within a deadline, whatever in it is stuck.

What was delivered is on disk by then: what a person typed before the model saw it, a token before it was
shown.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from h2o_chat.base.system import KILL

STEP_S = 2.0
"""What goes on has so long to come to its next step, and to end in order."""
KILLED_S = 0.75
"""And so long once the processes of ours that it may wait for are killed."""
LAST_S = 0.2
"""And so long has what must be done at the very last."""
LOOK_S = 0.01


def _nothing() -> None:
    """Nothing is left to do."""


class Deadline:
    """Ends this process, unless it is called off in time.

    Its threads are there from the beginning, asleep: where memory is short at the end Python can start none
    (and would wait for ever for one that it has tried to start).

    Args:
        last: done just before the process ends; may be stuck itself.
    """

    def __init__(self, last: Callable[[], None] = _nothing) -> None:
        import psutil  # not for every command that is never left, and not when memory is short

        self._children = psutil.Process().children
        self._last = last
        self._code = 0
        self._begun = self._now = self._over = False
        self._asleep = threading.Lock()
        """Held until it begins."""
        self._asleep.acquire()
        for work in (self._end, self._end_anyway):
            threading.Thread(target=work, name="deadline", daemon=True).start()

    @property
    def begun(self) -> bool:
        return self._begun

    def begin(self, code: int) -> None:
        """From here on it counts, unless it does so already; then the process ends with `code`."""
        if not self._begun:
            self._begun, self._code = True, code
            self._asleep.release()

    def hurry(self, code: int) -> None:
        """Somebody has asked once more: nothing is waited for any longer."""
        self.begin(code)
        self._now, self._code = True, code

    def call_off(self) -> None:
        """Everything has ended in order.

        What was to be done at the very last goes here, with all that it holds: a thread that lets go of
        tensors while Python ends aborts the process.
        """
        self._over = True
        self._last = _nothing
        self.begin(self._code)

    def _end(self) -> None:
        """Kills what belongs to it and may be waited for, then ends the process."""
        with self._asleep:
            pass
        if self._called_off(STEP_S):
            return
        children = self._children(recursive=True)
        for child in children:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(child.pid, KILL)  # a stopped one too
        if self._called_off(KILLED_S if children else 0.0):
            return
        self._last()
        os._exit(self._code)

    def _end_anyway(self) -> None:
        """Ends the process where the other thread is stuck, or had no memory for what it does."""
        with self._asleep:
            pass
        if not self._called_off(STEP_S + KILLED_S):
            time.sleep(LAST_S)
            os._exit(self._code)

    def _called_off(self, longest_s: float) -> bool:
        """Asked again and again: a thread that is woken needs memory."""
        end = time.monotonic() + longest_s
        while not self._over and not self._now and time.monotonic() < end:
            time.sleep(LOOK_S)
        return self._over
