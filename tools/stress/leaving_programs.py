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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from h2o_chat.events.events import Error, Event, Token, from_json

PATIENCE_S = 90.0
"""For whatever is no leaving: a machine may be busy."""
MARK = "H2O_LEAVING"
"""In the environment of all processes of a program."""
EVERY_TENSOR = {"MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_ARENA_MAX": "1"}
"""malloc asks the system for each, and finds no room in what it has from before."""
ENDLESS = ("--ignore-eos", "--max-tokens", "100000", "--threads", "1", "--seed", "1")
QUESTION = "Once upon a time"


@dataclass
class Program:
    """A program that answers. Its events are in a file outside of its disk."""

    process: "subprocess.Popen[bytes]"
    mark: str
    data: Path  # Where its conversations are kept
    folder: Path  # For files of this row: `events`, and `stderr` of `run`
    terminal: int = -1
    """The end at which a person sits; -1: it has vanished, or this is `run`, whose reader reads all."""
    drawn: bytearray = field(default_factory=bytearray)

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def vanish(self) -> None:
        """Whoever looks at it is gone."""
        if self.terminal >= 0:
            os.close(self.terminal)
        self.terminal = -1

    def read(self) -> None:
        """Takes what it shows now, or in a moment."""
        if self.terminal < 0:
            time.sleep(0.02)
            return
        with suppress(OSError):  # nobody is at the other end any more
            while select.select([self.terminal], [], [], 0.02)[0] and (more := os.read(self.terminal, 65536)):
                self.drawn += more

    def said(self) -> str:
        """All it has shown."""
        stderr = self.folder / "stderr"
        shown = stderr.read_bytes() if stderr.exists() else bytes(self.drawn)
        return re.sub(r"\x1b\[[0-9;?<]*[A-Za-z]", "", shown.decode("utf-8", "replace"))

    def processes(self) -> list[psutil.Process]:
        """Those of it that still run."""
        found = []
        for one in psutil.process_iter():
            with suppress(psutil.Error):
                if one.status() != psutil.STATUS_ZOMBIE and one.environ().get(MARK) == self.mark:
                    found.append(one)
        return found

    def end(self) -> int:
        """The exit code, once nothing goes on any more."""
        code = self.process.wait(PATIENCE_S)
        self.read()
        return code

    def kill(self) -> None:
        """Whatever is left of it."""
        for one in self.processes():
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.kill()
        self.process.wait()
        self.vanish()

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
        return len(self.ids())

    def failed(self) -> bool:
        return any(isinstance(one, Error) for one in self.told())


def screen(data: Path, folder: Path, model: str) -> Program:
    """The screen in a terminal, which is not its controlling one: nobody sends SIGHUP when it vanishes."""
    ours, theirs = pty.openpty()
    pipes = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    record = ["--record", str(folder / "events")]
    program = _started(data, folder, model, record, start_new_session=True, **pipes)
    os.close(theirs)
    program.terminal = ours
    try:
        program.until(lambda: "is ready" in program.said(), "the model is open")
        program.type(QUESTION + "\r")
    except BaseException:
        program.kill()
        raise
    return program


def run(data: Path, folder: Path, model: str) -> Program:
    """`run --save --json`, whose reader reads all."""
    how = ["run", QUESTION, "--save", "--json"]
    with (folder / "events").open("wb") as out, (folder / "stderr").open("wb") as errors:
        return _started(data, folder, model, how, stdin=subprocess.DEVNULL, stdout=out, stderr=errors)


def _started(data: Path, folder: Path, model: str, how: list[str], **pipes: Any) -> Program:
    mark = uuid.uuid4().hex
    command = [sys.executable, "-m", "h2o_chat", *how, "-m", model, "--data", str(data), *ENDLESS]
    process = subprocess.Popen(command, env={**os.environ, **EVERY_TENSOR, MARK: mark}, **pipes)
    return Program(process, mark, data, folder)
