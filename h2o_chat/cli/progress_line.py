"""One line of stderr that is rewritten while a prompt is read; nothing without a terminal."""

import os
import sys
from collections.abc import Iterator

from h2o_chat.chat.conversation.message import progress_words
from h2o_chat.events.events import CacheState, Event, ReadSoFar


def with_progress(events: Iterator[Event]) -> Iterator[Event]:
    """Passes events on; meanwhile the line shows the progress of reading, and is empty before what
    follows."""
    line = _Line()
    try:
        for event in events:
            if isinstance(event, ReadSoFar):
                line.write(f"reading {progress_words(event)} · ctrl+c stops")
            elif not isinstance(event, CacheState):
                line.erase()
            yield event
    finally:
        line.erase()


class _Line:
    """The line, and how many characters of it are written."""

    def __init__(self) -> None:
        self._written = 0
        self._shown = sys.stderr.isatty()

    def write(self, text: str) -> None:
        """Replace the text of the line."""
        if self._shown:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns  # those of stdout may be none
            text = text[: (columns or 80) - 1]  # a longer one would go on below
            sys.stderr.write("\r" + text.ljust(self._written))
            sys.stderr.flush()
            self._written = len(text)

    def erase(self) -> None:
        if self._written:
            self.write("")
            sys.stderr.write("\r")
            sys.stderr.flush()
            self._written = 0
