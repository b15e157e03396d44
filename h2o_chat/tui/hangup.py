"""A terminal that goes away is left, also where no signal tells of it: it may not be the controlling one.

Textual would read nothing from it for ever, and wait for ever to write to it.
"""

import os
import select
import signal
import threading


def leave_with_the_terminal() -> None:
    """From here on the process gets SIGHUP when the terminal goes away; what it still says goes nowhere."""
    ends = [descriptor for descriptor in (0, 1, 2) if os.isatty(descriptor)]
    if ends:
        threading.Thread(target=_wait, args=(ends,), name="terminal", daemon=True).start()


def _wait(ends: list[int]) -> None:
    poll = select.poll()
    poll.register(ends[0], 0)  # a hang-up is always told
    while not any(event & select.POLLHUP for _, event in poll.poll()):
        pass
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in ends:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
    os.kill(os.getpid(), signal.SIGHUP)
