"""Leaves with a terminal or a browser that goes away, also where no signal tells of it.

The terminal may not be the controlling one; a browser is behind two pipes to the server of the page. Textual
would read nothing from it for ever, and wait for ever to write to it.
"""

import os
import select
import signal
import threading


def leave_with_the_terminal(in_browser: bool = False) -> None:
    """Sends SIGHUP to this process when the terminal goes away; what it still writes goes nowhere.

    Args:
        in_browser: the terminal is a pair of pipes, whose other ends the server has.
    """
    if not hasattr(select, "poll"):  # Windows, where a window that is closed ends its programs
        return
    ends = [descriptor for descriptor in (0, 1, 2) if in_browser or os.isatty(descriptor)]
    if ends:
        threading.Thread(target=_wait, args=(ends,), name="terminal", daemon=True).start()


def _wait(ends: list[int]) -> None:
    poll = select.poll()
    poll.register(ends[0], 0)  # a hang-up is always told
    while not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
        pass
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in ends:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
    os.kill(os.getpid(), signal.SIGHUP)
