"""The real program in the middle of an answer, for `leaving`: a screen in a terminal, `run`."""

import os
import pty
import re
import select
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from h2o_chat.events.events import Error, Event, Token, from_json

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
PATIENCE_S = 90.0
"""For whatever is no leaving: a machine may be busy."""
MARK = "H2O_LEAVING"
"""In the environment of all processes of a program."""
EVERY_TENSOR = {"MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_ARENA_MAX": "1"}
"""malloc asks the system for each, and finds no room in what it has from before."""
COMMAND = [sys.executable, "-m", "h2o_chat"]
QUESTION = "Once upon a time"


def give_up_after(longest_s: float) -> float:
    """Longest wait for something that takes longer than it may, to say how long it took."""
    return longest_s + 20.0


class Terminal:
    """The end of a terminal at which a person sits."""

    def __init__(self, ours: int) -> None:
        self._ours = ours
        self._drawn = bytearray()

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def read(self) -> None:
        if self._ours < 0:
            time.sleep(0.02)
            return
        with suppress(OSError):  # nobody is at the other end any more
            while select.select([self._ours], [], [], 0.02)[0] and (more := os.read(self._ours, 65536)):
                self._drawn += more

    def said(self) -> str:
        return _without_escapes(bytes(self._drawn))

    def vanish(self) -> None:
        if self._ours >= 0:
            os.close(self._ours)
        self._ours = -1


@dataclass
class Program:
    """A program that answers. Its events are in a file outside of its disk."""

    process: "subprocess.Popen[bytes]"
    mark: str
    data: Path
    """Where its conversations are kept."""
    folder: Path
    """For files of this row: `events`, and `stderr` of `run`."""
    face: Terminal | None = None
    """Where a person sees it and types; `run` has none, its reader reads all."""

    def type(self, text: str) -> None:
        """Keys are pressed."""
        assert self.face is not None, "`run` has no screen"
        self.face.type(text)

    def vanish(self) -> None:
        """Whoever looks at it is gone."""
        assert self.face is not None, "`run` has no screen"
        self.face.vanish()

    def read(self) -> None:
        """Takes what it shows now, or in a moment."""
        if self.face is None:
            time.sleep(0.02)
        else:
            self.face.read()

    def said(self) -> str:
        """All it has shown."""
        return (self.folder / "stderr").read_text() if self.face is None else self.face.said()

    def processes(self) -> list[psutil.Process]:
        """Those of it that still run."""
        return _marked(self.mark)

    def end(self) -> int:
        """The exit code, once nothing goes on any more."""
        code = self.process.wait(PATIENCE_S)
        if self.face is not None:
            self.face.read()
        return code

    def kill(self) -> None:
        """Whatever is left of it."""
        for one in _marked(self.mark):
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.kill()
        self.process.wait()
        if self.face is not None:
            self.face.vanish()

    def until(self, met: Callable[[], bool], what: str) -> None:
        """Reads until a condition holds."""
        give_up = time.monotonic() + PATIENCE_S
        while not met():
            assert time.monotonic() < give_up, f"it never came: {what}. {self.said()[-1000:]}"
            self.read()

    def told(self) -> list[Event]:
        """All whole events until now."""
        events = self.folder / "events"
        if not events.exists():
            return []
        lines = events.read_text().splitlines(keepends=True)
        return [from_json(line) for line in lines if line.endswith("\n")]

    def ids(self) -> list[int]:
        """Tokens of the answer, as far as it tells them."""
        return [one.id for one in self.told() if isinstance(one, Token)]

    def delivered(self) -> int:
        """Waits until so many tokens of the answer have come out of it."""
        return len(self.ids())

    def failed(self) -> bool:
        return any(isinstance(one, Error) for one in self.told())


def screen(data: Path, folder: Path, model: str) -> Program:
    """The screen in a terminal, which is not its controlling one: nobody sends SIGHUP when it vanishes."""
    mark, environment = _marking()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *_flags(data, model), "--record", str(folder / "events")],
        env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    program = Program(process, mark, data, folder, Terminal(ours))
    try:
        program.until(lambda: "is ready" in program.said(), "the model is open")
        program.type(QUESTION + "\r")
    except BaseException:
        program.kill()
        raise
    return program


def run(data: Path, folder: Path, model: str) -> Program:
    """`run --save --json`, whose reader reads all."""
    mark, environment = _marking()
    how = ["run", QUESTION, *_flags(data, model), "--save", "--json"]
    with (folder / "events").open("wb") as out, (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            [*COMMAND, *how], env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=errors
        )
    return Program(process, mark, data, folder)


def _marking() -> tuple[str, dict[str, str]]:
    """The mark of a new program, and the environment that it is started in."""
    mark = uuid.uuid4().hex
    return mark, {**os.environ, **EVERY_TENSOR, MARK: mark}


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if one.status() != psutil.STATUS_ZOMBIE and one.environ().get(MARK) == mark:
                found.append(one)
    return found


def _flags(data: Path, model: str) -> list[str]:
    endless = ["--ignore-eos", "--max-tokens", "100000", "--threads", "1", "--seed", "1"]
    return ["-m", model, "--data", str(data), *endless]


def _without_escapes(drawn: bytes) -> str:
    return re.sub(r"\x1b\[[0-9;?<]*[A-Za-z]", "", drawn.decode("utf-8", "replace"))
