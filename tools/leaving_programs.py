"""The real program in the middle of an answer, for `leaving`: a screen in a terminal, `run`, a browser."""

import asyncio
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from h2o_chat.base.errors import UsageError
from h2o_chat.events.events import Error, Event, Token, from_json
from h2o_chat.store import Store

POCKET = Path(__file__).parents[1] / "assets" / "pocket"
PATIENCE_S = 90.0
"""For whatever is no leaving: a machine may be busy."""
MARK = "H2O_LEAVING"
"""In the environment of all processes of a program."""
EVERY_TENSOR = {"MALLOC_MMAP_THRESHOLD_": "4096", "MALLOC_ARENA_MAX": "1"}
"""malloc asks the system for each, and finds no room in what it has from before."""
QUESTION = "Once upon a time"


def give_up_after(longest_s: float) -> float:
    """What takes longer than it may is waited for a while, to say how long it took."""
    return longest_s + 20.0


class Program:
    """A program that answers. Its events are in a file outside of its disk.

    Args:
        data: where its conversations are kept.
        folder: for files of this row.
        model: that answers.
    """

    process: "subprocess.Popen[bytes]"

    def __init__(self, data: Path, folder: Path, model: str) -> None:
        self.data, self.events = data, folder / "events"
        self._mark = uuid.uuid4().hex
        self._environment = {**os.environ, **EVERY_TENSOR, MARK: self._mark}
        self._command = [sys.executable, "-m", "h2o_chat"]
        self._flags = ["-m", model, "--data", str(data)]
        self._flags += ["--ignore-eos", "--max-tokens", "100000", "--threads", "1", "--seed", "1"]
        try:
            self.start(folder)
        except BaseException:
            self.kill()
            raise

    def start(self, folder: Path) -> None:
        """Comes to where it answers."""
        raise NotImplementedError

    def type(self, text: str) -> None:
        """Keys are pressed."""
        raise NotImplementedError

    def vanish(self) -> None:
        """Whoever looks at it is gone."""
        raise NotImplementedError

    def read(self) -> None:
        """What it shows now, or in a moment, is taken from it."""
        time.sleep(0.02)

    def said(self) -> str:
        """All it has shown."""
        raise NotImplementedError

    def end(self) -> int:
        """The exit code, once nothing goes on any more."""
        return self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        """Whatever is left of it."""
        for one in self.processes():
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.kill()
        self.process.wait()

    def processes(self) -> list[psutil.Process]:
        """Those of it that still run."""
        return _marked(self._mark)

    def until(self, met: Callable[[], bool], what: str) -> None:
        """Reads until a condition holds."""
        give_up = time.monotonic() + PATIENCE_S
        while not met():
            assert time.monotonic() < give_up, f"it never came: {what}. {self.said()[-1000:]}"
            self.read()

    def told(self) -> list[Event]:
        """All whole events until now."""
        if not self.events.exists():
            return []
        lines = self.events.read_text().splitlines(keepends=True)
        return [from_json(line) for line in lines if line.endswith("\n")]

    def ids(self) -> list[int]:
        """Tokens of the answer, as far as it tells them."""
        return [one.id for one in self.told() if isinstance(one, Token)]

    def delivered(self) -> int:
        """So many tokens of the answer have come out of it."""
        return len(self.ids())

    def failed(self) -> bool:
        return any(isinstance(one, Error) for one in self.told())


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error):
            if one.status() != psutil.STATUS_ZOMBIE and one.environ().get(MARK) == mark:
                found.append(one)
    return found


class Screen(Program):
    """The screen in a terminal, which is not its controlling one: nobody sends SIGHUP when it vanishes."""

    def start(self, folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        self._drawn = bytearray()
        self.process = subprocess.Popen(
            [*self._command, *self._flags, "--record", str(self.events)], env=self._environment,
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.until(lambda: "is ready" in self.said(), "the model is open")
        self.type(QUESTION + "\r")

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def vanish(self) -> None:
        os.close(self._ours)
        self._ours = -1

    def read(self) -> None:
        if self._ours < 0:
            time.sleep(0.02)
            return
        with suppress(OSError):  # nobody is at the other end any more
            while select.select([self._ours], [], [], 0.02)[0] and (more := os.read(self._ours, 65536)):
                self._drawn += more

    def said(self) -> str:
        return _without_escapes(bytes(self._drawn))

    def end(self) -> int:
        code = super().end()
        self.read()
        return code

    def kill(self) -> None:
        super().kill()
        if self._ours >= 0:
            self.vanish()


class Run(Program):
    """`run --save --json`, whose reader reads all."""

    def start(self, folder: Path) -> None:
        self._errors = folder / "stderr"
        how = ["run", QUESTION, *self._flags, "--save", "--json"]
        with self.events.open("wb") as out, self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*self._command, *how], env=self._environment,
                stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
            )  # fmt: skip

    def said(self) -> str:
        return self._errors.read_text()


class Browser(Program):
    """A tab of the screen in a browser. Its server goes on when it is gone, and is no process of it."""

    _session: Any

    def start(self, folder: Path) -> None:
        self._drawn, self._session = bytearray(), None
        self._loop = asyncio.new_event_loop()
        how = ["--web", "--web-address", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            [*self._command, *how, *self._flags], env=self._environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/\?key=\S+", self.process.stderr.readline().decode())
        assert found is not None
        self._address = found[0]
        self._loop.run_until_complete(self._open())
        self.until(lambda: "is ready" in self.said(), "the model is open")
        self.type(QUESTION)
        self.type("\r")
        self.until(lambda: self._first() > 0, "an answer begins")
        self._prompt_tokens = self._first()

    def _first(self) -> int:
        """The place of the first token of the answer: so many were read before it."""
        store = Store(self.data)
        try:
            return store.path(store.find("last"))[-1].first
        except (UsageError, IndexError):  # nothing was said yet
            return 0
        finally:
            store.close()

    async def _open(self) -> None:
        import aiohttp

        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        base = self._address.partition("/?key=")[0]
        async with self._session.get(self._address) as page:
            assert page.status == 200
        self._socket: Any = await self._session.ws_connect(
            f"{base.replace('http', 'ws')}/ws?width=110&height=30", origin=base
        )

    def type(self, text: str) -> None:
        self._loop.run_until_complete(self._socket.send_json(["stdin", text]))

    def vanish(self) -> None:
        """Without a word of the websocket, as when the browser is killed."""
        self._socket._response.connection.transport.abort()

    def read(self) -> None:
        self._loop.run_until_complete(self._read())

    async def _read(self) -> None:
        if self._socket.closed:
            await asyncio.sleep(0.02)
            return
        with suppress(TimeoutError):
            message = await self._socket.receive(timeout=0.02)
            if isinstance(message.data, bytes):
                self._drawn += message.data

    def said(self) -> str:
        return _without_escapes(bytes(self._drawn))

    def delivered(self) -> int:
        """By the number that the page shows: tokens that were read and answered."""
        seen = re.findall(r"seen (\d+) ", self.said())
        return max(0, int(seen[-1]) - self._prompt_tokens) if seen else 0

    def processes(self) -> list[psutil.Process]:
        return [one for one in super().processes() if one.pid != self.process.pid]

    def end(self) -> int:
        """The exit code of the server, which is told to end."""
        self.process.send_signal(signal.SIGTERM)
        return super().end()

    def kill(self) -> None:
        super().kill()
        if self._session is not None:
            self._loop.run_until_complete(self._session.close())
            self._session = None


def _without_escapes(drawn: bytes) -> str:
    return re.sub(r"\x1b\[[0-9;?<]*[A-Za-z]", "", drawn.decode("utf-8", "replace"))
