"""Terminals in which the real program runs."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from forking import Forked
from program import PROGRAM

WAIT_S = 90


class Terminal:
    """A terminal of 80 columns and 24 lines in which a program runs, and which can be closed at any moment.

    Args:
        program: what gets the arguments.
        fresh: it runs in a new interpreter, and is not forked.
        controlling: ctrl+c is a signal, and so is the end of the terminal.
        piped: what stdin gives; then stdout is a pipe too, and only stderr is the terminal.
    """

    def __init__(
        self,
        *arguments: object,
        program: Sequence[str] = PROGRAM,
        fresh: bool = False,
        controlling: bool = False,
        piped: str | None = None,
        **environment: str,
    ) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = (subprocess.Popen if fresh else Forked)(
            [*program, *map(str, arguments)],
            stdin=theirs if piped is None else subprocess.PIPE,
            stdout=theirs if piped is None else subprocess.PIPE,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=partial(fcntl.ioctl, 0, termios.TIOCSCTTY, 0) if controlling else None,
            env={**os.environ, **environment},
        )
        os.close(theirs)
        if piped is not None:
            self.process.stdin.write(piped.encode())
            self.process.stdin.close()
        self.drawn = bytearray()
        self._open = True

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        if self._open:
            os.close(self.ours)
        self._open = False

    @property
    def text(self) -> str:
        """All that was written since `drawn` was cleared."""
        return self.drawn.decode(errors="replace").replace("\r\n", "\n")

    def until(self, met: Callable[[], object], what: str = "") -> None:
        """Reads what is drawn until a condition holds."""
        give_up = time.monotonic() + WAIT_S
        while not met():
            assert time.monotonic() < give_up, f"{what}: {self.text[-2000:]}"
            assert self.process.poll() is None, self.text[-2000:]
            self._read()

    def sees(self, text: str, after: int = 0) -> None:
        """Reads until this stands there, behind so many characters."""
        self.until(lambda: text in self.text[after:], text)

    def types(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def ended(self, within_s: float = WAIT_S) -> int:
        """Its exit code; what it still says is read, or it could not say it."""
        give_up = time.monotonic() + within_s
        while self.process.poll() is None:
            assert time.monotonic() < give_up, self.text[-2000:]
            self._read()
        while self._read():
            pass
        return self.process.returncode

    def _read(self) -> bool:
        """Reads what is there, or comes in a moment; whether there was anything."""
        more = b""
        with suppress(OSError):  # nobody is at the other end any more
            if select.select([self.ours], [], [], 0.05)[0]:
                more = os.read(self.ours, 65536)
        self.drawn += more
        return bool(more)
