"""Recording: the events of a conversation, written to a file as they happen; `recording` reads them again."""

import os
import stat
import time
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from h2o_chat.base.errors import UsageError
from h2o_chat.base.private_files import stands_at
from h2o_chat.events.events import End, Event, Note, Turn, to_json

_HINT = "Choose another file: a recording is never written over anything."


class Recorder:
    """Writes events to a file as they happen. A disk that fails ends the recording, not the conversation.

    Args:
        path: made, for its owner alone, when it is opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._lock = Lock()
        self._turns = self._tokens = 0
        self._began = time.monotonic()

    def open(self) -> None:
        """
        Raises:
            UsageError: the file cannot be written, or something stands in it.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            # A pipe that nobody reads would be waited for.
            number = os.open(self._path, flags | getattr(os, "O_NONBLOCK", 0), 0o600)
        except OSError as error:
            raise UsageError(f"{self._path} cannot be written: {error.strerror}.", _HINT) from error
        file = os.fstat(number)
        if not stat.S_ISREG(file.st_mode) or file.st_size:
            os.close(number)
            what = "is not empty" if stat.S_ISREG(file.st_mode) else "is not a file"
            raise UsageError(f"{self._path} {what}: nothing is recorded there.", _HINT)
        self._file = os.fdopen(number, "ab")

    def write(self, event: Event) -> Note | None:
        """Writes one event; when this returns, the end of our process cannot undo it.

        Returns:
            A note when the disk fails, once; from then on nothing is written.
        """
        with self._lock:
            if self._file is None:
                return None
            if isinstance(event, Turn):
                self._turns, self._tokens = self._turns + 1, self._tokens + event.new_tokens
            try:
                if not stands_at(self._file.fileno(), self._path):
                    raise OSError(None, f"{self._path} was removed or moved")
                self._file.write((to_json(event) + "\n").encode())
                self._file.flush()
            except OSError as error:
                self._let_go()
                hint = f"The conversation goes on; {self._path} ends here."
                return Note("recording", f"The recording failed: {error.strerror or error}.", hint)
            if isinstance(event, End):
                self._let_go()
            return None

    def end(self) -> None:
        """Writes the last line, unless it stands there, and closes the file."""
        self.write(End(self._turns, self._tokens, time.monotonic() - self._began))

    def _let_go(self) -> None:
        file, self._file = self._file, None
        try:
            if file is not None:
                file.close()
        except OSError:  # what it still holds cannot be written; that was said already
            pass
