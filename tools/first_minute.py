"""Times the first minute: from the command to the first word with a mark, by a person who only presses enter.

    python tools/first_minute.py [COLUMNSxROWS]

starts the chat screen in tmux with a data folder of its own, reads for two seconds, presses enter, and so on
until four lines were sent. Prints what stands on the screen after each of them, and the times.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from h2o_chat.tui.talk.first_minute import CODE, OFFERS

ROOT = Path(__file__).parents[1]
READ_S = 2.0
"""A person looks at the screen so long before pressing enter."""
MOST_S = 180.0
STRUCK = re.compile(r"\x1b\[[\d;:]*\b9[;m]")
"""A word that is forgotten is struck through: the first mark that is seen."""


class Screen:
    """A program in a tmux of its own.

    Args:
        socket: of the tmux, which nobody else uses.
    """

    def __init__(self, socket: Path) -> None:
        self._tmux = ["tmux", "-f", "/dev/null", "-S", str(socket)]

    def start(self, size: str, command: str) -> None:
        columns, rows = size.split("x")
        self._call("new-session", "-d", "-x", columns, "-y", rows, command)

    def press(self, key: str) -> None:
        self._call("send-keys", key)

    def shown(self, *, styles: bool = False) -> str:
        """What stands there, with escape sequences for its styles or without."""
        return self._call("capture-pane", "-p", *(["-e"] if styles else []))

    def end(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)

    def until(self, met: Callable[[], bool], what: str) -> None:
        give_up = time.monotonic() + MOST_S
        while not met():
            if time.monotonic() > give_up:
                sys.exit(f"Waited {MOST_S:.0f} s in vain until {what}:\n{self.shown()}")
            time.sleep(0.1)

    def until_shown(self, text: str) -> None:
        self.until(lambda: text in self.shown(), f"{text!r} is shown")

    def _call(self, *arguments: str) -> str:
        return subprocess.run([*self._tmux, *arguments], check=True, capture_output=True, text=True).stdout


@contextmanager
def screen(size: str) -> Iterator[Screen]:
    with tempfile.TemporaryDirectory() as folder:
        one = Screen(Path(folder, "tmux"))
        try:
            one.start(size, f"cd {ROOT} && make chat ARGS='--data {folder}/data'")
            yield one
        finally:
            one.end()


def main() -> None:
    if shutil.which("tmux") is None:
        print("skipped: there is no tmux here")
        return
    size = sys.argv[1] if len(sys.argv) > 1 else "120x36"
    began = time.monotonic()
    lit = 0.0

    def seconds() -> float:
        return time.monotonic() - began

    with screen(size) as one:
        for offer in OFFERS:
            one.until_shown(f"{offer.shown} ↵")
            print(f"\n== {seconds():.1f} s\n{one.shown()}", flush=True)
            time.sleep(READ_S)
            one.press("Enter")
            if len(offer.texts) > 1:
                one.until(lambda: bool(STRUCK.search(one.shown(styles=True))), "a word is struck through")
                lit = seconds()
                print(f"\n== {lit:.1f} s, the first mark\n{one.shown()}", flush=True)
        one.until_shown(f"It is {CODE}.")
        one.until_shown("→ h2o-chat")
        print(f"\n== {seconds():.1f} s\n{one.shown()}")
    print(f"From make chat to the first mark: {lit:.1f} s; to the end: {seconds():.1f} s ({size}).")
    if lit > 60:
        sys.exit("That is more than a minute.")


if __name__ == "__main__":
    main()
