"""A run of the real program, what it says while it runs, and what it leaves behind."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from forking import Forked

from h2o_chat.base.errors import ExitCode
from h2o_chat.events.events import Event, Token, from_json
from h2o_chat.store import Store, StoredMessage

PROGRAM = [sys.executable, "-m", "h2o_chat"]
POCKET = Path(__file__).parents[2] / "assets" / "pocket"
WITHOUT_TORCH = """
import json, sys
from h2o_chat.cli.cli import app
for arguments in json.loads(sys.argv[1]):
    try:
        app(arguments)
    except SystemExit as end:
        print("ended with", end.code)
assert "torch" not in sys.modules
"""
E = TypeVar("E")


def of_kind(kind: type[E], events: Iterable[Event]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def kept(folder: Path, every_branch: bool = False) -> list[StoredMessage]:
    """The messages of the last conversation in a data folder."""
    store = Store(folder)
    try:
        conversation = store.find("last")
        return store.messages(conversation) if every_branch else store.path(conversation)
    finally:
        store.close()


@dataclass(frozen=True)
class Ended:
    """Output and exit code of a run of the program."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> list[Event]:
        """Every line of stdout as an event: one that is none is an error."""
        return [from_json(line) for line in self.out.splitlines()]

    def of(self, kind: type[E]) -> list[E]:
        return of_kind(kind, self.events)


def started(*arguments: object, **how: Any) -> "subprocess.Popen[Any]":
    """`h2o-chat ARGUMENTS` under way: nothing is piped in, and what it says can be read as text."""
    usual = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return Forked([*PROGRAM, *map(str, arguments)], **usual | how)


def h2o(*arguments: object, piped: str | bytes = b"", ends: int | None = ExitCode.OK, **how: Any) -> Ended:
    """Runs `h2o-chat ARGUMENTS` in a process of its own; `ends` as for `h2o_here`."""
    raw = piped.encode() if isinstance(piped, str) else piped
    with started(*arguments, stdin=subprocess.PIPE, text=False, **how) as process:
        try:
            out, err = process.communicate(raw, timeout=400)
        except BaseException:
            process.kill()
            raise
    assert ends in (None, process.returncode), err.decode()
    return Ended(process.returncode, out.decode(), err.decode())


def without_torch(*commands: Iterable[object]) -> tuple[list[int], str]:
    """Exit codes of commands and what they say on stderr: in one new interpreter, which imports no torch."""
    asked = json.dumps([[*map(str, command)] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, asked],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [int(code) for code in re.findall(r"^ended with (\d+)$", done.stdout, re.MULTILINE)], done.stderr


class Streamed:
    """`run --json ARGUMENTS`, whose events are read one by one."""

    def __init__(self, *arguments: object) -> None:
        self.process = started("run", "--json", *arguments)
        self.events: list[Event] = []

    def __enter__(self) -> "Streamed":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    @property
    def tokens(self) -> list[int]:
        return [token.id for token in of_kind(Token, self.events)]

    def read(self) -> bool:
        """Reads an event; whether there was one."""
        line = self.process.stdout.readline()
        self.events += [from_json(line)] if line else []
        return bool(line)

    def until(self, kind: type[Event], times: int = 1) -> None:
        """Reads until so many more events of a kind have come."""
        while times:
            assert self.read(), self.process.communicate()[1]
            times -= isinstance(self.events[-1], kind)

    def ended(self) -> tuple[int, str]:
        """Its exit code and what stderr still says; all further events are read."""
        while self.read():
            pass
        err = self.process.stderr.read()
        return self.process.wait(100), err
