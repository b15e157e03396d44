"""An engine in a process of its own, to be used like one that is here (`EngineLike`).

Python runs one thread of a process at a time. Drawing took a quarter of a small engine's time, and the engine
made the screen wait (docs/MEASURED.md, "The screen"). Apart, each has a core; torch is not even imported on
the screen's side; and if the system kills the engine, the screen is still there to say so.

Every call costs two messages through a pipe, every event one (tens of microseconds). Tensors stay there:
snapshots and other engines are held by number.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from h2o_chat.config import Sampling, Settings
from h2o_chat.engine_process import Call, Cancel, Held, Known, Reply
from h2o_chat.errors import EngineError
from h2o_chat.events import CacheState, Event, Token, Turn
from h2o_chat.progress import Progress, never

_PROGRAM = "from h2o_chat.engine_process import main; main()"
LOOK_S = 0.02
"""How often is asked whether a call was cancelled while nothing comes of it."""
HEARD_S = 0.25
"""How often is told again how far the opening is, so that somebody who has left is noticed."""
ENDING_S = 5.0
"""A process whose end of the pipe is closed is gone after this time."""


class _Process:
    """The other process, and the pipe to it; it ends with the last engine that uses this object."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        # What it writes must not stand across the screen; the last line is told if it dies.
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  (until the process ends)
        self._process = subprocess.Popen(
            # -P: a module that lies where somebody happens to stand is not ours. The rest is looked for where
            # this process does.
            [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno())],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._words,
            stderr=self._words,
            start_new_session=True,  # Ctrl-C, and a terminal that goes away, are the screen's business
        )
        theirs.close()
        self._pipe: Connection[Any, Any] = Connection(ours.detach())
        self.end = weakref.finalize(self, _end, self._process, self._pipe)
        """Ends it at once."""
        self._numbers = count(1)
        self._sending = threading.Lock()  # `watch` comes from the screen's thread, in the middle of an answer
        self._unread: dict[int, deque[Reply]] = {}
        """What came of calls that are not over, while another's reply was waited for."""
        self.dropped: list[int] = []
        """Of what is held there: to be told with the next call."""

    def begin(
        self, engine: Held | None, name: str, *args: Any, cancels: bool = False, **keywords: Any
    ) -> int:
        """Makes a call; its number.

        Raises:
            EngineError: the process has ended.
        """
        number = next(self._numbers)
        self._unread[number] = deque()
        dropped = [self.dropped.pop() for _ in range(len(self.dropped))]
        self._send(Call(number, engine, name, args, keywords, cancels, dropped))
        return number

    def cancel(self, call: int) -> None:
        self._send(Cancel(call))

    def over(self, call: int) -> None:
        """Nobody reads any more of it."""
        self._unread.pop(call, None)

    def waits(self, call: int, longest_s: float) -> bool:
        """Whether something of a call is there, now or in so many seconds.

        Raises:
            EngineError: the process has ended.
        """
        unread = self._unread[call]
        while not unread and self._pipe.poll(longest_s):
            try:
                reply: Reply = self._pipe.recv()
            except (EOFError, ConnectionResetError):
                raise self._gone() from None
            if reply.call in self._unread:
                self._unread[reply.call].append(reply)
        return bool(unread)

    def next(self, call: int) -> Reply:
        """What came of it; something is there."""
        return self._unread[call].popleft()

    def _send(self, message: Call | Cancel) -> None:
        try:
            with self._sending:
                self._pipe.send(message)
        except OSError:
            raise self._gone() from None

    def _gone(self) -> EngineError:
        code = self._process.wait(ENDING_S)
        self._words.seek(0)
        last = self._words.read().decode(errors="replace").strip().splitlines()[-1:]
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with {code}"
        said = f" It said: {last[0]}" if last else ""
        hint = "The system kills what takes too much memory: a smaller --budget or model needs less. "
        return EngineError(
            f"The engine's process has ended {how}.{said}",
            (hint if -code == signal.SIGKILL else "") + "What was stored is there: h2o-chat --resume last.",
        )


def _end(process: "subprocess.Popen[bytes]", pipe: "Connection[Any, Any]") -> None:
    pipe.close()
    process.kill()  # it has nothing to put away: what lasts is written on this side, or was in one move
    process.wait()


class EngineApart:
    """See `engine.Engine`, which does what this asks for. Not thread-safe but for `watch`, as that one is."""

    def __init__(self, process: _Process, known: Known, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.session, self.eos = known.session, known.eos
        self.seen = 0
        self.pending: tuple[int, ...] = ()
        self._process = process
        self._held = self._kept(known.held)

    def generate(
        self, ids: Sequence[int], sampling: Sampling, cancel: Callable[[], bool] = never
    ) -> Iterator[Event]:
        """See `Engine.generate`. It may be some tokens ahead of who reads; a reader who leaves cancels it.

        Raises:
            EngineError: the process has ended, after a `Turn` with what came of it.
        """
        turn = Turn("", "error", 0, 0, 0.0, 0.0, self.seen, 0, 0, 0.0)
        try:
            for event in self._told("generate", list(ids), sampling, cancel=cancel):
                if isinstance(event, Token):
                    turn = replace(turn, text=turn.text + event.text, new_tokens=turn.new_tokens + 1)
                yield event
        except EngineError:
            yield turn
            raise

    def relive(self, ids: Sequence[int], *, answer: bool, exact: bool, cancel: Callable[[], bool]) -> bool:
        """See `Engine.relive`."""
        return bool(self._ask("relive", list(ids), answer=answer, exact=exact, cancel=cancel))

    def snapshot(self) -> Held:
        """See `Engine.snapshot`; it is there, and this is its number."""
        return self._kept(self._ask("snapshot"))

    def restore(self, snapshot: Held, *, hand_over: bool = False) -> None:
        """See `Engine.restore`."""
        self._ask("restore", snapshot, hand_over=hand_over)

    def remade(self, settings: Settings) -> "EngineApart":
        """See `Engine.remade`."""
        return EngineApart(self._process, self._ask("remade", settings), self.tokenizer)

    def reseed(self, seed: int) -> None:
        """See `Engine.reseed`."""
        self._ask("reseed", seed)
        self.session = replace(self.session, seed=seed)

    def watch(self, on: bool) -> None:
        """See `Engine.watch`; at any time, from any thread."""
        with suppress(EngineError):  # whoever asks something of it next is told
            self._process.over(self._process.begin(self._held, "watch", on))

    def check(self, settings: Settings) -> None:
        """See `Engine.check`."""
        self._ask("check", settings)

    def protect(self, tokens: int) -> int:
        """See `Engine.protect`."""
        return int(self._ask("protect", tokens))

    def pin(self, positions: range) -> int:
        """See `Engine.pin`."""
        return int(self._ask("pin", positions))

    def unpin(self, positions: range | None = None) -> None:
        """See `Engine.unpin`."""
        self._ask("unpin", positions)

    def protection(self) -> tuple[int, int | None]:
        """See `Engine.protection`."""
        slots: tuple[int, int | None] = self._ask("protection")
        return slots

    def budget_for(self, protected: int) -> int | None:
        """See `Engine.budget_for`."""
        budget: int | None = self._ask("budget_for", protected)
        return budget

    def look(self) -> CacheState:
        """See `Engine.look`."""
        state: CacheState = self._ask("look")
        return state

    def inspect(self, position: int) -> list[list[bool]]:
        """See `Engine.inspect`."""
        holders: list[list[bool]] = self._ask("inspect", position)
        return holders

    def text_of(self, position: int) -> str:
        """See `Engine.text_of`."""
        return str(self._ask("text_of", position))

    def save(self, path: Path) -> None:
        """See `Engine.save`."""
        self._ask("save", path)

    def load(self, path: Path) -> None:
        """See `Engine.load`."""
        self._ask("load", path)

    def reset(self) -> None:
        """See `Engine.reset`."""
        self._ask("reset")

    def _kept(self, held: Held) -> Held:
        """It stays there for as long as somebody here has this."""
        weakref.finalize(held, self._process.dropped.append, held.number)
        return held

    def _ask(self, name: str, *args: Any, **keywords: Any) -> Any:
        """What a method returns."""
        told = self._told(name, *args, **keywords)
        while True:
            try:
                next(told)
            except StopIteration as end:
                return end.value

    def _told(
        self, name: str, *args: Any, cancel: Callable[[], bool] | None = None, **keywords: Any
    ) -> Generator[Any, None, Any]:
        """What a method tells, one thing after another, then returns or raises."""
        cancels = cancel is not None
        call = self._process.begin(self._held, name, *args, cancels=cancels, **keywords)
        try:
            while True:
                if cancel is not None and cancel():
                    self._process.cancel(call)
                    cancel = None
                if not self._process.waits(call, LOOK_S):
                    continue
                reply = self._process.next(call)
                self.seen, self.pending = reply.seen, reply.pending
                match reply.kind:
                    case "told":
                        yield reply.value
                    case "returned":
                        return reply.value
                    case "raised":
                        raise reply.value
        except GeneratorExit:
            if cancels:
                with suppress(EngineError):  # then there is nothing to stop
                    self._process.cancel(call)
            raise
        finally:
            self._process.over(call)


def engine_apart(settings: Settings, progress: Progress) -> EngineApart:
    """What `opening.engine_here` opens, in a process of its own.

    Raises:
        EngineError: that process has ended.
        H2OChatError: whatever opening an engine raises.
    """
    process = _Process()
    try:
        return _opened(process, settings, progress)
    except BaseException:
        process.end()
        raise


def _opened(process: _Process, settings: Settings, progress: Progress) -> EngineApart:
    call = process.begin(None, "open", settings)
    stage: tuple[str, float | None] = ("start", None)  # Python and torch, which takes seconds
    progress(*stage)
    while True:
        if not process.waits(call, HEARD_S):
            progress(*stage)
            continue
        reply = process.next(call)
        match reply.kind:
            case "told":
                stage = reply.value
                progress(*stage)
            case "returned":
                return EngineApart(process, *reply.value)
            case "raised":
                raise reply.value
