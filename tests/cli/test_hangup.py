"""A terminal that goes away without a signal: it is not the controlling terminal of what runs in it."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from forking import Forked
from program import PROGRAM

from h2o_chat.base.errors import ExitCode
from h2o_chat.store import Store
from h2o_chat.tui.prompt.first_minute import FILE

RECORDING = Path(__file__).parents[1] / "tui" / "recordings" / "chat.jsonl"
POCKET = Path(__file__).parents[2] / "assets" / "pocket"


def alive(process: int) -> bool:
    """Whether it still runs; what nobody has waited for after its end does not."""
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Terminal:
    """A terminal in which a program runs, and which can be closed at any moment.

    `fresh`: the program runs in a new interpreter, and is not forked; `below`: started by this code.
    """

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()

    def __init__(self, *arguments: object, fresh: bool = False, below: str = "") -> None:
        self.ours, theirs = pty.openpty()
        started = [sys.executable, "-c", below, *PROGRAM[1:]] if below else PROGRAM
        self.process = (subprocess.Popen if fresh or below else Forked)(
            [*started, *map(str, arguments)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,  # without a controlling terminal: nobody sends SIGHUP
        )
        os.close(theirs)
        self.drawn = bytearray()

    def until(self, met: Callable[[], bool], what: str) -> None:
        """Reads what is drawn until a condition holds."""
        give_up = time.monotonic() + 90
        while not met():
            assert time.monotonic() < give_up, what
            assert self.process.poll() is None, self.drawn[-2000:].decode(errors="replace")
            self.read()

    def read(self) -> None:
        """Reads what is drawn now, or in a moment."""
        with suppress(OSError):  # nobody is at the other end any more
            while select.select([self.ours], [], [], 0.05)[0] and (more := os.read(self.ours, 65536)):
                self.drawn += more


FOREGROUND = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # as a shell does
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
if not (number := os.fork()):
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpgid(0))
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
while True:
    _, how = os.waitpid(number, os.WUNTRACED)
    if not os.WIFSTOPPED(how):
        sys.exit(os.waitstatus_to_exitcode(how))
    os.tcsetpgrp(0, os.getpgid(0))
    os.write(1, b"[stopped]")
    os.read(0, 1)
    os.tcsetpgrp(0, number)
    os.kill(number, signal.SIGCONT)
"""


def test_ctrl_z_suspends_and_fg_shows_it_again(tmp_path: Path) -> None:
    """As below a shell: whoever has started it gets the terminal."""
    (tmp_path / FILE).touch()
    with Terminal("-m", POCKET, "--data", tmp_path, below=FOREGROUND) as terminal:
        terminal.until(lambda: b"pocket is ready" in terminal.drawn, "the model is open")
        os.write(terminal.ours, b"\x1a")
        terminal.until(lambda: b"[stopped]" in terminal.drawn, "it is stopped")
        terminal.drawn.clear()
        os.write(terminal.ours, b"\n")
        terminal.until(lambda: b"pocket is ready" in terminal.drawn, "all of it is drawn again")
        os.write(terminal.ours, b"\x11")
        assert terminal.process.wait(30) == 0


@pytest.mark.parametrize("moment", ["answering", "idle", "loading"])
def test_the_screen_leaves_and_keeps_everything(tmp_path: Path, moment: str) -> None:
    events = tmp_path / "events"
    flags = (
        "-m",
        POCKET,
        "--data",
        tmp_path,
        "--record",
        events,
        "--ignore-eos",
        "--threads",
        1,
        "--seed",
        1,
    )

    def recorded(event: str) -> Callable[[], bool]:
        return lambda: events.exists() and f'"event": "{event}"' in events.read_text()

    with Terminal(*flags, fresh=moment == "loading") as terminal:
        if moment == "loading":
            terminal.until(lambda: b"opening" in terminal.drawn, "it says what it opens")
        else:
            terminal.until(recorded("session"), "the model is open")
            os.write(terminal.ours, b"Once upon a time\r")
            terminal.until(recorded("token"), "it answers")
        if moment == "idle":
            os.write(terminal.ours, b"\x1b")
            terminal.until(recorded("turn"), "it has stopped")
        os.close(terminal.ours)
        assert terminal.process.wait(timeout=60) == ExitCode.HUNG_UP
    if moment == "loading":
        return
    store = Store(tmp_path)
    said, answer = store.path(store.find("last"))
    store.close()
    assert (said.text, answer.finish) == ("Once upon a time", "stopped")
    assert answer.text
    assert recorded("turn")()
    assert recorded("end")(), "the recording is whole"


def test_a_replay_leaves_too() -> None:
    with Terminal("replay", RECORDING) as terminal:
        terminal.until(lambda: b"a recording" in terminal.drawn, "it plays")
        os.close(terminal.ours)
        assert terminal.process.wait(timeout=60) == ExitCode.HUNG_UP
