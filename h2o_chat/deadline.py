"""The end of a process that somebody leaves comes within a deadline, whatever in it is stuck.

What was delivered is on disk by then: what a person typed before the model saw it, a token before it was
shown.
"""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

STEP_S = 2.0
"""What goes on has so long to come to its next step, and to end in order."""
KILLED_S = 0.75
"""And so long once the processes of ours that it may wait for are killed."""
LAST_S = 0.2
"""And so long has what must be done at the very last."""


class Deadline:
    """Ends this process, unless it is called off in time.

    Args:
        last: done just before the process ends; may be stuck itself.
    """

    def __init__(self, last: Callable[[], None] = lambda: None) -> None:
        self._last = last
        self._code = 0
        self._begun = self._now = self._over = False
        self._changed = threading.Condition()

    @property
    def begun(self) -> bool:
        return self._begun

    def begin(self, code: int) -> None:
        """From here on it counts, unless it does so already; then the process ends with `code`."""
        with self._changed:
            if self._begun:
                return
            self._begun, self._code = True, code
        threading.Thread(target=self._wait, name="deadline", daemon=True).start()

    def hurry(self, code: int) -> None:
        """Somebody has asked once more: nothing is waited for any longer."""
        self.begin(code)
        with self._changed:
            self._now, self._code = True, code
            self._changed.notify_all()

    def call_off(self) -> None:
        """Everything has ended in order."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _wait(self) -> None:
        import psutil  # not for every command that is never left

        if self._called_off(STEP_S):
            return
        children = psutil.Process().children(recursive=True)
        for child in children:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(child.pid, signal.SIGKILL)  # a stopped one too
        if self._called_off(KILLED_S if children else 0.0):
            return
        last = threading.Thread(target=self._last, daemon=True)
        last.start()
        last.join(LAST_S)
        os._exit(self._code)

    def _called_off(self, longest_s: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._now, longest_s)
            return self._over
