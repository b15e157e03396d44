"""Input and output of the plain chat: lines, no cursor movement, no colour, no escape sequences."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from h2o_chat.base.deadline import Deadline
from h2o_chat.base.errors import ExitCode
from h2o_chat.base.safe import safe_text
from h2o_chat.base.system import handling

SAY_S = 5.0
"""Seconds without a line, typed or written, after which it is said how far long work is."""
BLOCK = '"""'
"""A line of this begins a text of several lines, and ends it."""
HOW = f"a line that ends with \\ goes on; lines between two lines of {BLOCK} are one message"


class SignalEnd(BaseException):
    pass


class Signals:
    """ctrl+c stops an answer, or interrupts the waiting for a line; other signals end the program.

    Attributes:
        stopped: the answer is to stop at its next step.
        code: exit code; `OK` while nothing ends the program.
    """

    def __init__(self) -> None:
        self.stopped = False
        self.code = ExitCode.OK
        self._waiting = False
        self._deadline = Deadline()

    @contextmanager
    def taken(self) -> Iterator[None]:
        try:
            with handling(self._signalled):
                yield
        finally:
            self._deadline.call_off()

    def stops(self) -> bool:
        return self.stopped

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While a line is waited for.

        Raises:
            KeyboardInterrupt: ctrl+c.
            SignalEnd: another signal.
        """
        self.stopped, self._waiting = False, True
        try:
            if self.code is not ExitCode.OK:
                raise SignalEnd
            yield
        finally:
            self._waiting = False

    def _signalled(self, number: int, _: Any) -> None:
        if number == signal.SIGINT:
            if self._waiting or self.stopped:  # once more: the step that should end takes too long
                raise KeyboardInterrupt
            self.stopped = True
            return
        self.code, self.stopped = ExitCode(128 + number), True
        self._deadline.begin(self.code)
        if self._waiting:
            raise SignalEnd


class Lines:
    """Standard input and output, line by line."""

    def __init__(self) -> None:
        for stream in (sys.stdin, sys.stdout):
            stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
        self._asks = sys.stdin.isatty()
        self._in_line = False  # the text written last did not end its line
        self._quiet_since = time.monotonic()

    def read(self) -> str | None:
        """The next text, of one line or several; None at the end."""
        line = self._line("> ")
        if line is None:
            return None
        if line.strip() == BLOCK:
            lines = []
            while (line := self._line("| ")) is not None and line.strip() != BLOCK:
                lines.append(line)
            return "\n".join(lines)
        while line.endswith("\\"):
            line = f"{line[:-1]}\n{self._line('| ') or ''}"
        return line

    def _line(self, sign: str) -> str | None:
        if self._asks:
            self.write(sign)
        line = sys.stdin.readline()
        self._quiet_since = time.monotonic()
        self._in_line = self._asks and not line.endswith("\n")
        return line.rstrip("\r\n") if line else None

    def write(self, text: str) -> None:
        """Write text as it comes: control characters are replaced by visible ones."""
        if text:
            sys.stdout.write(safe_text(text))
            sys.stdout.flush()
            self._in_line = not text.endswith("\n")
            self._quiet_since = time.monotonic()

    def end_line(self) -> None:
        if self._in_line:
            self.write("\n")

    def say(self, text: str) -> None:
        """Write whole lines."""
        self.end_line()
        self.write(f"{text}\n")

    def say_if_quiet(self, text: str) -> None:
        if time.monotonic() - self._quiet_since >= SAY_S:
            self.say(text)

    def progress(self, stage: str, share: float | None) -> None:
        """Says how far an opening is (`Progress`)."""
        if share is not None:
            what, _, details = stage.partition(":")
            self.say_if_quiet(f"{what} {share:.0%}{details}")

    def note(self, message: str, hint: str = "") -> None:
        self.say(f"note: {message} {hint}".rstrip())

    def error(self, message: str, hint: str = "") -> None:
        self.say(f"error: {message} {hint}".rstrip())
