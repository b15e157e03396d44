"""Reads recordings: events as JSON lines, as `recorder` and `run --json` write them.

Files are untrusted: everything in them is checked and has a limit, and errors name the line. Standard library
only; the file is never in memory as a whole.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from h2o_chat.base.errors import UsageError
from h2o_chat.events.events import (
    KINDS,
    SCHEMA,
    CacheState,
    Event,
    Note,
    Prompt,
    ReadSoFar,
    Said,
    Session,
    Token,
    Turn,
    event_of,
    object_of,
)
from h2o_chat.events.typed import seen

MAX_BYTES = 1 << 30
MAX_LINE_BYTES = 16 << 20

_HINT = "A recording is made by --record FILE, or by h2o-chat run --json."
_MOST = 2**53
"""Larger numbers are not exact everywhere."""
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
    messages = 0
    """Most messages that this conversation can have so far."""
    for number, raw in enumerate(_lines(stream, name), 1):
        where = f"{name} line {number}"
        if not raw.strip():
            continue
        try:
            data = object_of(raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n"))
        except ValueError as error:
            cut = isinstance(error, json.JSONDecodeError | UnicodeDecodeError) and not raw.endswith(b"\n")
            if cut and begun:
                yield Note(
                    "recording", f"The recording was cut off in line {number}.", "What follows is lost."
                )
                return
            raise _wrong(where, f"is no event: {_what(error)}") from error
        known = _known(data, where)
        if not known and not skipped:
            skipped = True
            text = f"Line {number} has an event that is not known here, {seen(data['event'])}."
            yield Note("recording", text, "Such lines are left out: update h2o-chat to see them.")
        if not known:
            continue
        try:
            event = event_of(data)
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
    """Whether the event is known here."""
    schema = data.get("schema", SCHEMA)
    if data.get("event") == "session" and type(schema) is int and schema > SCHEMA:
        raise UsageError(
            f"{where}: a newer h2o-chat recorded this (schema {seen(schema)}; this one reads {SCHEMA}).",
            "Update h2o-chat.",
        )
    if not isinstance(data.get("event"), str):
        raise _wrong(where, "names no event")
    return data["event"] in KINDS


def _check(event: Event, messages: int) -> None:
    """Checks the ranges of an event's numbers; their types are right already.

    Args:
        messages: most messages that the conversation can have.
    """
    match event:
        case Session():
            _within("budget", 1 if event.budget is None else event.budget, 1)
            for name in ("layers", "kv_heads", "window"):
                _within(name, getattr(event, name), 1)
        case Said():
            _within("index", event.index, 0, messages)
            _within("hold", event.hold or 0, 0, 2)
            for name in ("first", "last"):
                _within(name, getattr(event, name), -1)
            _within("texts", len(event.texts), 0, max(event.last - event.first + 1, 0))
        case ReadSoFar():
            _counts(event, ("ms", "of"))
            _within("tokens", event.tokens, 0, event.of)
        case Prompt():
            _counts(event, ("ms", "first", "last", "system"))
            _within("texts", len(event.texts), 0, max(event.last - event.first + 1, 0))
        case Token():
            _counts(event, ("ms", "position"))
        case CacheState():
            _counts(event, ("seen", "kept", "bytes", "bytes_full"))
            _within("lost", event.lost, -1, 1000)
            for heavy in event.heaviest:
                _within("hold", heavy.hold, 0, 2)
            for _, hold, _ in event.changed:
                _within("hold", hold, 0, 2)
            for kind, count in event.kinds.items():
                _within(f"kinds[{seen(kind)}]", count, 0)
            _check_panel(event)
        case Turn():
            _counts(event, ("prompt_tokens", "new_tokens", "seen", "kept"))
            _within("tok_s", event.tok_s, 0)
            for _, hold in event.hold:
                _within("hold", hold, 0, 2)


def _check_panel(event: CacheState) -> None:
    """Checks the fields that only the memory panel shows."""
    _within("gone_tokens", event.gone_tokens, 0)
    for gone in event.gone:
        _within("hold", gone.hold, 0, 2)
    for first, last in event.protected:
        _within("protected", first, 0)
        _within("protected", last, first)
    for rank, _ in event.ranks:
        _within("rank", rank, 1)
    for _, caches in event.holders:
        if not _BITMAP.fullmatch(caches):
            raise ValueError(f"holders has {seen(caches)}, which are no hexadecimal digits")


def _counts(event: Event, names: Iterable[str]) -> None:
    for name in names:
        _within(name, getattr(event, name), 0)


def _within(name: str, value: float, low: float, high: float = _MOST) -> None:
    if not low <= value <= high:
        raise ValueError(f"{name} is {seen(value)}, which cannot be")


def _wrong(where: str, what: str) -> UsageError:
    return UsageError(f"{where} {what}.", _HINT)


def _what(error: ValueError) -> str:
    """The error's text; for JSON without the line number, which is always 1."""
    return f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
