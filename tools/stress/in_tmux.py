"""The chat screen in a terminal that a script can type into and look at: in tmux."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
MOST_S = 180.0
"""Nothing is waited for longer than this."""
END_S = 10.0
"""For the program to end by itself when its terminal is gone."""


class Screen:
    """A program in a tmux of its own.

    Args:
        folder: for the socket of that tmux, and for what the program writes.
    """

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self._tmux = ["tmux", "-f", "/dev/null", "-S", str(folder / "tmux")]

    def start(self, size: str, command: str) -> None:
        columns, rows = size.split("x")
        self._call("new-session", "-d", "-x", columns, "-y", rows, command)

    def press(self, key: str) -> None:
        self._call("send-keys", key)

    def write(self, text: str) -> None:
        """Type a text, each character as it is."""
        self._call("send-keys", "-l", "--", text)

    def shown(self, *, styles: bool = False) -> str:
        """What stands there, with escape sequences for its styles or without."""
        return self._call("capture-pane", "-p", *(["-e"] if styles else []))

    def end(self) -> None:
        """Take the terminal away, and wait until the program and all its processes are gone."""
        pane = subprocess.run(
            [*self._tmux, "display-message", "-p", "#{pane_pid}"], capture_output=True, text=True
        )
        processes = []
        if pane.stdout.strip() and psutil.pid_exists(int(pane.stdout)):
            shell = psutil.Process(int(pane.stdout))
            processes = [shell, *shell.children(recursive=True)]
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)
        for left in psutil.wait_procs(processes, timeout=END_S)[1]:
            left.kill()

    def until(self, met: Callable[[], bool], what: str, most_s: float = MOST_S) -> None:
        give_up = time.monotonic() + most_s
        while not met():
            if time.monotonic() > give_up:
                sys.exit(f"Waited {most_s:.0f} s in vain until {what}:\n{self.shown()}")
            time.sleep(0.1)

    def until_shown(self, text: str) -> None:
        self.until(lambda: text in self.shown(), f"{text!r} is shown")

    def _call(self, *arguments: str) -> str:
        return subprocess.run([*self._tmux, *arguments], check=True, capture_output=True, text=True).stdout


@contextmanager
def chat_screen(size: str, arguments: str = "") -> Iterator[Screen]:
    """`make chat` with these arguments and a data folder of its own, which is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        one = Screen(Path(folder))
        try:
            one.start(size, f"cd '{ROOT}' && make chat ARGS='--data {one.data} {arguments}'")
            yield one
        finally:
            one.end()
