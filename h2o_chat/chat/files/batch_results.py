"""The output of `run --batch`: a line for each answer, written at once; a run that was killed goes on in
it."""

import json
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TextIO

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import BusyError, StoreLostError, UsageError, name_of, refusal
from h2o_chat.base.private_files import stands_at
from h2o_chat.base.system import lock
from h2o_chat.chat.files.batch_lines import BatchLine
from h2o_chat.events.events import Turn
from h2o_chat.models.resolve import find

_BEGINS = b'{"id": '  # the beginning of every line
_FINISH = {"eos": "stop", "stop": "stop", "length": "length", "stopped": "stopped", "error": "error"}
"""Names that clients of OpenAI know."""
_ALWAYS_SAID = ("model", "policy", "budget")
_DECIDE_NOTHING = ("threads", "events_every", "recall")
"""Settings that change no answer: nothing is recalled in a batch."""


def made_with(settings: Settings, sampling: Sampling) -> dict[str, Any]:
    """The settings that decide the answers of a run: model, policy, budget, and what is not at its default.

    A system prompt is given by its digest, because every line repeats it.
    """
    found: dict[str, Any] = {}
    name = settings.model or find(None).name
    settings = replace(settings, model=name, seed=settings.seed or None)  # 0: not given
    for group in (settings, sampling):
        for one in fields(group):
            value = getattr(group, one.name)
            if one.name in _ALWAYS_SAID or (value != one.default and one.name not in _DECIDE_NOTHING):
                found[one.name] = list(value) if isinstance(value, tuple) else value
    if settings.system is not None:
        found["system"] = f"sha256 {sha256(settings.system.encode()).hexdigest()[:16]}"
    return found


def line_of(
    id: str | int,
    turn: Turn | None,
    error: Exception | None = None,
    *,
    made: dict[str, Any] | None = None,
    asked: str | None = None,
) -> str:
    """One answer, or why there is none, as a line of JSON; `made`: see `made_with`, `asked`: the digest."""
    read, said = (turn.prompt_tokens, turn.new_tokens) if turn else (0, 0)
    wrong = None
    if error is not None:
        wrong = {
            "code": getattr(error, "code", "bug"),
            "message": getattr(error, "message", f"{type(error).__name__}: {error}"),
            "hint": getattr(error, "hint", "This is a bug of h2o-chat: please report it."),
        }
    answer: dict[str, Any] = {
        "id": id,
        "text": turn.text if turn else "",
        "finish_reason": _FINISH[turn.finish] if turn else "error",
        "usage": {
            "prompt_tokens": read,
            "completion_tokens": said,
            "total_tokens": read + said,
            "evicted_tokens": turn.evicted if turn else 0,
        },
        "error": wrong,
        "settings": made,
        "asked": asked,
    }
    return json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace").decode() + "\n"


class ResultsFile:
    """The file of answers, locked for this process until it is closed.

    A last line that was not written to its end is cut off; the rest of the file is not touched. Before each
    line it is checked that the file still stands at its path, as it was left.

    Args:
        made: see `made_with`; lines of earlier versions, which do not say it, are accepted.

    Raises:
        UsageError: it cannot be opened, or holds something else, or answers that were made otherwise.
        BusyError: another process writes to it.
    """

    def __init__(self, path: Path, made: dict[str, Any] | None = None) -> None:
        self._path, self._made = path, made
        self.done: dict[str, str | None] = {}
        """Digest of the question, by id of the answers that are there; None in lines of earlier versions."""
        self._bytes: int | None = None  # length of the file; None where it is no regular file
        try:
            self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "rb+", buffering=0)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{path} cannot be opened: {refusal(error)}.", "Give -o another file."
            ) from error
        try:
            if stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                lock(self._file.fileno())
                self._read()
        except BlockingIOError as error:
            self._file.close()
            hint = "Wait until it ends, or give -o another file."
            raise BusyError(f"Another process writes to {path}.", hint) from error
        except BaseException:
            self._file.close()
            raise

    def left(self, jobs: Sequence[BatchLine]) -> list[BatchLine]:
        """The jobs that have no answer yet; UsageError: a line with an answer asks for something else now."""
        for job in jobs:
            if self.done.get(str(job.id), job.digest) not in (job.digest, None):
                line = f"Line {job.line:,}, id {name_of(job.id)},"
                what = f"{line} has changed since {self._path} got its answer: nothing was changed."
                hint = "Give it another id, take its answer out of that file, or give -o another file."
                raise UsageError(what, hint)
        return [job for job in jobs if str(job.id) not in self.done]

    def write(self, line: str) -> None:
        """Writes a whole line; what is written of it before an OSError is cut off by the next run."""
        self.require()
        rest = memoryview(line.encode())
        while rest:
            rest = rest[self._file.write(rest) :]
        if self._bytes is not None:
            self._bytes += len(line.encode())

    def require(self) -> None:
        """StoreLostError: the file was removed, moved, replaced or cut; says where its lines are."""
        if self._bytes is None:
            return
        about = os.fstat(self._file.fileno())
        if about.st_size != self._bytes:
            bytes_now = f"it has {about.st_size:,} bytes, and {self._bytes:,} were written"
            what = f"{self._path} was changed by somebody else while it was written: {bytes_now}."
            raise StoreLostError(what, "Run it again with -o another file.")
        if not stands_at(self._file.fileno(), self._path):
            beside = self._path.with_name(f"{self._path.name}.rescued-{os.getpid()}")
            try:
                beside.parent.mkdir(parents=True, exist_ok=True)
                with beside.open("xb") as copy:
                    self._file.seek(0)
                    shutil.copyfileobj(self._file, copy)
                where = f"All lines so far are in {beside}: -o with that name goes on."
            except OSError as error:
                where = f"They could not be written to {beside} either: {error.strerror}."
            raise StoreLostError(f"{self._path} was removed or moved while it was written.", where)

    def close(self) -> None:
        self._file.close()

    def _read(self) -> None:
        """Read the answers that are there, and go to the end."""
        end, raw, answer = 0, b"", None
        with self._path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                answer = _answer_in(raw)
                if answer is not None:
                    self._compare(number, answer.get("settings"))
                    asked = answer.get("asked")
                    self.done[str(answer["id"])] = asked if isinstance(asked, str) else None
                    end += len(raw)
                elif raw.endswith(b"\n") or not (raw.startswith(_BEGINS) or _BEGINS.startswith(raw)):
                    what = f"{self._path} line {number:,} is no answer of a batch: nothing was changed."
                    raise UsageError(what, "Give -o another file.")
        self._file.truncate(end)
        self._file.seek(end)
        if end and answer is not None and not raw.endswith(b"\n"):  # whole, but for its end
            self._file.write(b"\n")
        self._bytes = self._file.tell()

    def _compare(self, number: int, before: Any) -> None:
        if self._made is None or not isinstance(before, dict) or before == self._made:
            return
        name = next(key for key in {**self._made, **before} if before.get(key) != self._made.get(key))
        was, now = (name_of(one.get(name, "not given")) for one in (before, self._made))
        what = f"{self._path} line {number:,} was made with another {name} ({was}, now {now})"
        hint = "Give the flags of that run, or -o another file."
        raise UsageError(f"{what}: nothing was changed.", hint)


class Stdout:
    """Writes answers to stdout, where none was written before."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def left(self, jobs: Sequence[BatchLine]) -> list[BatchLine]:
        return list(jobs)

    def require(self) -> None: ...

    def write(self, line: str) -> None:
        self._stream.write(line)
        self._stream.flush()

    def close(self) -> None: ...


def _answer_in(raw: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    keys = {"id", "text", "finish_reason", "usage", "error"}
    return found if isinstance(found, dict) and keys <= found.keys() else None
