"""Recordings: events as JSON lines, written as they happen (`run --json` writes the same), and read again.

Files are untrusted: everything that is read is checked and has a limit, and errors name the line. The file is
never in memory as a whole. Standard library only.
"""

import json
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

from h2o_chat.base.errors import UsageError
from h2o_chat.base.private_files import stands_at
from h2o_chat.base.system import NO_WAITING
from h2o_chat.events import events
from h2o_chat.events.events import CacheState, End, Event, Note, Prompt, ReadSoFar, Said, Session, Token, Turn
from h2o_chat.events.typed import seen

MAX_BYTES = 1 << 30
MAX_LINE_BYTES = 16 << 20

_HINT = "A recording is made by --record FILE, or by h2o-chat run --json."
_MOST = 2**53  # larger numbers are not exact everywhere
_BITMAP = re.compile("[0-9a-f]*")


def read(path: Path) -> Iterator[Event]:
    """The events of a recording, read lazily; it begins with a `Session`.

    Raises:
        UsageError: the file cannot be read, or a line is wrong (raised when that line is reached).
    """
    try:
        with path.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size > MAX_BYTES:
                raise UsageError(f"{path} is larger than {MAX_BYTES >> 30} GiB.", _HINT)
            yield from parse(stream, str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.", _HINT) from error


def parse(stream: BinaryIO, name: str) -> Iterator[Event]:
    """The events of a stream of lines; a `Note` says if lines were left out.

    Args:
        name: of the file, for errors.

    Raises:
        UsageError: a line is wrong; names the line and the fault.
    """
    begun = skipped = False
    messages = 0  # most messages that this conversation can have so far
    for number, raw in enumerate(_lines(stream, name), 1):
        where = f"{name} line {number}"
        if not raw.strip():
            continue
        try:
            data = events.object_of(raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n"))
        except ValueError as error:
            cut = isinstance(error, json.JSONDecodeError | UnicodeDecodeError) and not raw.endswith(b"\n")
            if cut and begun:
                yield Note(
                    "recording", f"The recording was cut off in line {number}.", "What follows is lost."
                )
                return
            raise _wrong(where, f"is no event: {_what(error)}") from error
        if not _known(data, where):
            if not skipped:
                skipped = True
                text = f"Line {number} has an event that is not known here, {seen(data['event'])}."
                yield Note("recording", text, "Such lines are left out: update h2o-chat to see them.")
            continue
        try:
            event = events.event_of(data)
            _check(event, messages)
        except ValueError as error:
            raise _wrong(where, f"is wrong: {_what(error)}") from error
        if not begun and not isinstance(event, Session):
            raise _wrong(where, f"is {event.event}, and a recording begins with session")
        begun = True
        match event:
            case Session():
                messages = 0
            case Said():
                messages = event.index + 2  # with the answer
            case Turn():
                messages += 2  # some recordings have no `said`
        yield event
    if not begun:
        raise UsageError(f"{name} has no events in it.", _HINT)


def _lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """The lines of a stream, each with its newline."""
    number = total = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number, total = number + 1, total + len(line)
        if len(line) > MAX_LINE_BYTES:
            raise _wrong(f"{name} line {number}", f"is longer than {MAX_LINE_BYTES >> 20} MiB")
        if total > MAX_BYTES:  # a file that grows, or one without a size, such as a pipe
            raise UsageError(f"{name} is larger than {MAX_BYTES >> 30} GiB.", _HINT)
        yield line


def _known(data: dict[str, Any], where: str) -> bool:
    schema = data.get("schema", events.SCHEMA)
    if data.get("event") == "session" and type(schema) is int and schema > events.SCHEMA:
        raise UsageError(
            f"{where}: a newer h2o-chat recorded this (schema {seen(schema)}; this one reads"
            f" {events.SCHEMA}).",
            "Update h2o-chat.",
        )
    if not isinstance(data.get("event"), str):
        raise _wrong(where, "names no event")
    return data["event"] in events.KINDS


_FROM_0 = {
    ReadSoFar: ("ms", "of"),
    Prompt: ("ms", "first", "last", "system"),
    Token: ("ms", "position"),
    CacheState: ("seen", "kept", "bytes", "bytes_full", "gone_tokens"),
    Turn: ("prompt_tokens", "new_tokens", "seen", "kept", "tok_s"),
}
"""Numbers of each event that are never negative."""


def _check(event: Event, messages: int) -> None:
    """Checks the ranges of an event's numbers; their types are right, and there are at most `messages`."""
    for name in _FROM_0.get(type(event), ()):
        _within(name, getattr(event, name), 0)
    holds: list[float] = []
    match event:
        case Session():
            for name in ("budget", "layers", "kv_heads", "window"):
                value = getattr(event, name)
                _within(name, 1 if value is None else value, 1)
        case Said():
            _within("index", event.index, 0, messages)
            _within("first", event.first, -1)
            _within("last", event.last, -1)
            holds = [event.hold or 0]
        case ReadSoFar():
            _within("tokens", event.tokens, 0, event.of)
        case CacheState():
            _within("lost", event.lost, -1, 1000)
            for kind, count in event.kinds.items():
                _within(f"kinds[{seen(kind)}]", count, 0)
            for first, last in event.protected:
                _within("protected", first, 0)
                _within("protected", last, first)
            for rank, _ in event.ranks:
                _within("rank", rank, 1)
            for _, caches in event.holders:
                if not _BITMAP.fullmatch(caches):
                    raise ValueError(f"holders has {seen(caches)}, which are no hexadecimal digits")
            holds = [hold for _, hold, _ in event.changed]
            holds += [one.hold for one in event.heaviest] + [one.hold for one in event.gone]
        case Turn():
            holds = [hold for _, hold in event.hold]
    for hold in holds:
        _within("hold", hold, 0, 2)
    if isinstance(event, Said | Prompt):
        _within("texts", len(event.texts), 0, max(event.last - event.first + 1, 0))


def _within(name: str, value: float, low: float, high: float = _MOST) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {seen(value)}, which cannot be")


def _wrong(where: str, what: str) -> UsageError:
    return UsageError(f"{where} {what}.", _HINT)


def _what(error: ValueError) -> str:
    """The error's text; for JSON without the line number, which is always 1."""
    return f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)


_NEVER_OVER = "Choose another file: a recording is never written over anything."


class Recorder:
    """Writes events to a file, its owner's alone. A failing disk ends the recording, not the conversation."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._lock = Lock()
        self._turns = self._tokens = 0
        self._began = time.monotonic()

    def open(self) -> None:
        """Raises UsageError if the file cannot be written, or something stands in it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            # A pipe that nobody reads would be waited for.
            number = os.open(self._path, flags | NO_WAITING, 0o600)
        except OSError as error:
            raise UsageError(f"{self._path} cannot be written: {error.strerror}.", _NEVER_OVER) from error
        file = os.fstat(number)
        if not stat.S_ISREG(file.st_mode) or file.st_size:
            os.close(number)
            what = "is not empty" if stat.S_ISREG(file.st_mode) else "is not a file"
            raise UsageError(f"{self._path} {what}: nothing is recorded there.", _NEVER_OVER)
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
                self._file.write((events.to_json(event) + "\n").encode())
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
        with suppress(OSError):  # what it still holds cannot be written; that was said already
            if file is not None:
                file.close()
