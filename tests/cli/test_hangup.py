"""A screen whose terminal goes away without a signal, or which is told to end; and one that is suspended."""

import signal
import sys
from pathlib import Path

import pytest
from program import POCKET, PROGRAM
from sweep import sweep
from terminals import Terminal

from h2o_chat.base.errors import ExitCode
from h2o_chat.store import Store
from h2o_chat.tui.prompt.first_minute import FILE

RECORDING = Path(__file__).parents[1] / "tui" / "recordings" / "chat.jsonl"
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
    """Runs below a shell: whoever has started it gets the terminal."""
    (tmp_path / FILE).touch()
    shell = [sys.executable, "-c", FOREGROUND, *PROGRAM[1:]]
    with Terminal("-m", POCKET, "--data", tmp_path, program=shell, fresh=True) as terminal:
        terminal.sees("pocket is ready")
        terminal.types("\x1a")
        terminal.sees("[stopped]")
        terminal.drawn.clear()
        terminal.types("\n")
        terminal.sees("pocket is ready")  # all of it is drawn again
        terminal.types("\x11")
        assert terminal.ended() == ExitCode.OK


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        *(("answering", 0), ("idle", 0), ("loading", 0), ("answering", signal.SIGTERM)),
        *sweep(("answering", signal.SIGHUP)),
    ],
)
def test_the_screen_leaves_and_keeps_everything(tmp_path: Path, moment: str, number: int) -> None:
    """`number`: the signal that it gets; 0: its terminal is closed."""
    events = tmp_path / "events"
    flags = ("--data", tmp_path, "--record", events, "--ignore-eos", "--threads", 1, "--seed", 1)

    def recorded(event: str) -> bool:
        return events.exists() and f'"event": "{event}"' in events.read_text()

    with Terminal("-m", POCKET, *flags, fresh=moment == "loading") as terminal:
        if moment == "loading":
            terminal.sees("opening")
        else:
            terminal.until(lambda: recorded("session"), "the model is open")
            terminal.types("Once upon a time\r")
            terminal.until(lambda: recorded("token"), "it answers")
        if moment == "idle":
            terminal.types("\x1b")
            terminal.until(lambda: recorded("turn"), "it has stopped")
        if number:
            terminal.process.send_signal(number)
            assert terminal.ended() == 128 + number
        else:
            terminal.close()
            assert terminal.process.wait(timeout=60) == ExitCode.HUNG_UP
    if moment == "loading":
        return
    store = Store(tmp_path)
    conversation = store.find("last")
    said, answer = store.path(conversation)
    store.close()
    assert (said.text, answer.finish) == ("Once upon a time", "stopped")
    assert answer.text
    assert recorded("turn")
    assert recorded("end"), "the recording is whole"
    if number:
        assert f"go on with --resume {conversation} --data {tmp_path}" in terminal.text


def test_a_replay_leaves_too() -> None:
    with Terminal("replay", RECORDING) as terminal:
        terminal.sees("a recording")
        terminal.close()
        assert terminal.process.wait(timeout=60) == ExitCode.HUNG_UP
