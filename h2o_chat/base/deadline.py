"""A process that the user leaves ends within a deadline, even if something in it is stuck.

Nothing that was shown is lost: typed text is on disk before the model sees it, a token before it is shown.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from h2o_chat.base.system import KILL

STEP_S = 2.0  # seconds for a running step to finish and for the process to end in order
KILLED_S = 0.75  # seconds left after the child processes, which it may wait for, were killed
LAST_S = 0.2  # seconds left for the final callback
LOOK_S = 0.01


class Deadline:
    """Ends this process, unless it is called off in time.

    Its threads are started at once and sleep: when memory is short at the end, Python cannot start one (and
    waits forever for one that it tried to start).

    Args:
        last: called just before the process ends; may hang itself.
    """

    def __init__(self, last: Callable[[], None] = lambda: None) -> None:
        import psutil  # not for every command that is never left, and not when memory is short

        self._children = psutil.Process().children
        self._last = last
        self._code = 0
        self.begun = self._now = self._over = False
        self._asleep = threading.Lock()  # held until `begin`: the threads wait for it
        self._asleep.acquire()
        for work in (self._end, self._end_anyway):
            threading.Thread(target=work, name="deadline", daemon=True).start()

    def begin(self, code: int) -> None:
        """Starts the countdown, if it has not started; at its end the process exits with `code`."""
        if not self.begun:
            self.begun, self._code = True, code
            self._asleep.release()

    def hurry(self, code: int) -> None:
        """Ends the process without any further wait: the user asked a second time."""
        self.begin(code)
        self._now, self._code = True, code

    def call_off(self) -> None:
        """Stops the countdown: everything has ended in order.

        The final callback is dropped here, with all that it references: a thread that frees tensors while
        Python shuts down aborts the process.
        """
        self._over = True
        self._last = lambda: None
        self.begin(self._code)

    def _end(self) -> None:
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
        """Ends the process if the other thread hangs or runs out of memory."""
        with self._asleep:
            pass
        if not self._called_off(STEP_S + KILLED_S):
            time.sleep(LAST_S)
            os._exit(self._code)

    def _called_off(self, longest_s: float) -> bool:
        """Polls until it is called off or the time is over: waking a thread would need memory."""
        end = time.monotonic() + longest_s
        while not self._over and not self._now and time.monotonic() < end:
            time.sleep(LOOK_S)
        return self._over
