"""Leaving the screen: in order where everything works, within a deadline where something is stuck.

Whoever leaves (ctrl+c twice, `/quit`, a signal, a terminal that is gone) asks the job in the
thread to stop. It ends at its next step, closes the answer and saves the memory; then the store is let go. If
that step does not come, the engine's process is killed, which ends the job too; if even that does not help,
this process ends at once.
"""

import asyncio
import os
import select
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

from h2o_chat.base.deadline import Deadline
from h2o_chat.base.errors import ExitCode
from h2o_chat.base.system import ENDING
from h2o_chat.tui.chat_app import ChatApp

if sys.platform != "win32":
    import termios

_SHOWN_AGAIN = (
    "\x1b[?2004l\x1b[?7h\x1b[?2048l"  # no marks around what is pasted, long lines go on, no reports of sizes
    "\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l"  # no mouse
    "\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"  # keys as they were, what stood there before, the cursor
)
"""The escape sequences with which Textual ends, for an end that it does not reach."""


def run(screen: ChatApp) -> None:
    """Runs the screen until somebody has left it and nothing runs in its thread.

    Then the conversation has still to be let go (`Chat.close`). It may wait for the store, so no deadline
    counts any more.
    """
    terminal = _Terminal()
    screen.deadline = deadline = Deadline(terminal.restore)
    screen.take_signals = lambda: take_signals(screen, deadline)
    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        screen.run()
    finally:
        terminal.in_use = False
        screen.deadline.begin(screen.exit_code)
        screen.jobs.cancel()
        screen.jobs.wait()
        screen.deadline.call_off()
        for number, handler in before.items():
            signal.signal(number, handler)


def take_signals(screen: ChatApp, deadline: Deadline) -> None:
    """Makes SIGINT, SIGTERM and SIGHUP leave the screen; a second SIGINT or SIGTERM waits for nothing.

    Python calls the handler also where the loop of the screen is stuck, in which asyncio would call its own.
    """
    loop = asyncio.get_running_loop()

    def handle(number: int, _: Any) -> None:
        code = ExitCode(128 + number)
        if deadline.begun and code != ExitCode.HUNG_UP:  # a terminal that goes away may tell so twice
            deadline.hurry(code)
            return
        screen.exit_code = code
        deadline.begin(code)
        with suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(screen.exit)

    for number in ENDING:
        signal.signal(number, handle)


class _Terminal:
    """The attributes of the terminal, restored where Textual does not do it."""

    def __init__(self) -> None:
        self.in_use = True
        self._attributes = None
        if sys.platform != "win32":
            with suppress(termios.error):  # it is none, or gone
                self._attributes = termios.tcgetattr(0)

    def restore(self) -> None:
        if sys.platform != "win32" and self.in_use and self._attributes is not None:
            termios.tcsetattr(0, termios.TCSANOW, self._attributes)
            os.write(1, _SHOWN_AGAIN.encode())


def leave_with_the_terminal() -> None:
    """Sends SIGHUP to this process when the terminal goes away; what it still writes goes nowhere."""
    if not hasattr(select, "poll"):  # Windows, where a window that is closed ends its programs
        return
    in_browser = "TEXTUAL_DRIVER" in os.environ  # then these are pipes of textual-serve
    ends = [descriptor for descriptor in (0, 1, 2) if in_browser or os.isatty(descriptor)]

    def wait() -> None:
        poll = select.poll()
        poll.register(ends[0], 0)  # a hang-up is always told
        while not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
            pass
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in ends:
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
        os.kill(os.getpid(), signal.SIGHUP)

    if ends:
        threading.Thread(target=wait, name="terminal", daemon=True).start()
