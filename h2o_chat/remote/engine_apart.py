"""An engine in a process of its own, used like one that is here.

Python runs one thread of a process at a time. Drawing took a quarter of a small engine's time, and the engine
made the screen wait (docs/MEASURED.md, "The screen"). Apart, each has a core; torch is imported on the
screen's side only to check a download; and if the system kills the engine, the screen can say so.

Every call costs two messages through a pipe, every event one (tens of microseconds). Tensors stay there:
snapshots and other engines are held by number.
"""

import pickle
import signal
import socket
import subprocess
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from typing import IO, TYPE_CHECKING, Any, cast

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import EngineError
from h2o_chat.base.program_name import python
from h2o_chat.base.progress import Progress, ShouldStop, never, unheard
from h2o_chat.base.system import KILL
from h2o_chat.engine.request import EarlierAnswer
from h2o_chat.events.events import Event, Finish, Prompt, Token, Turn
from h2o_chat.remote.engine_process import Call, CallReply, Cancel, EngineFacts, RemoteObject

if TYPE_CHECKING:  # importing torch takes seconds
    from h2o_chat.engine.engine import Engine

_PROGRAM = "from h2o_chat.remote.engine_process import main; main()"
LOOK_S = 0.02
"""Seconds between two checks whether a call was cancelled, while nothing comes of it."""
HEARD_S = 0.25
"""Seconds between two reports of the opening: in each, leaving is noticed."""
ENDING_S = 5.0
"""A process is gone this long after its end of the pipe was closed."""


class _Process:
    """The other process, which ends with its last engine, and its pipe; EngineError once it has ended."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        command, environment = python(_PROGRAM, str(theirs.fileno()))
        # Its output must not appear on the screen; the last line is shown if it dies.
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  (until the process ends)
        self._process = subprocess.Popen(
            command,
            env=environment,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._words,
            stderr=self._words,
            start_new_session=True,  # Ctrl-C, and a terminal that goes away, are the screen's business
        )
        theirs.close()
        self._pipe: Connection[Any, Any] = Connection(ours.detach())
        self.end = weakref.finalize(self, _end, self._process, self._pipe, self._words)
        self._numbers = count(1)
        self._sending = threading.Lock()  # `watch` comes from the screen's thread, in the middle of an answer
        self._reading = threading.Lock()
        self._unread: dict[int, deque[CallReply]] = {}
        """Replies to unfinished calls that came while another's reply was waited for."""
        self.dropped: list[int] = []
        """Numbers of objects there that are no longer needed; sent with the next call."""

    def begin(
        self, engine: RemoteObject | None, name: str, *args: Any, cancels: bool = False, **keywords: Any
    ) -> int:
        """Makes a call; returns its number."""
        number = next(self._numbers)
        self._unread[number] = deque()
        with self._sending:
            dropped = self.dropped[:]
            self._send(Call(number, engine, name, args, keywords, cancels, dropped))
            del self.dropped[: len(dropped)]
        return number

    def cancel(self, call: int) -> None:
        with self._sending:
            self._send(Cancel(call))

    def over(self, call: int) -> None:
        self._unread.pop(call, None)

    def reply(self, call: int, longest_s: float) -> CallReply | None:
        """The next reply to a call, if one is there now or in so many seconds.

        Raises RuntimeError if two threads ask at once: they would take parts of each other's replies.
        """
        if not self._reading.acquire(blocking=False):
            raise RuntimeError("Two threads wait for the same engine.")
        try:
            while not self._unread[call] and self._pipe.poll(longest_s):
                reply: CallReply = pickle.loads(self._pipe.recv_bytes())
                if (unread := self._unread.get(reply.call)) is not None:
                    unread.append(reply)
        except (EOFError, OSError):  # it may have ended in the middle of a message
            raise self._gone() from None
        finally:
            self._reading.release()
        return self._unread[call].popleft() if self._unread[call] else None

    def _send(self, message: Call | Cancel) -> None:
        try:
            self._pipe.send(message)
        except OSError:
            raise self._gone() from None

    def _gone(self) -> EngineError:
        try:
            code = self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:  # it cannot be talked to, and lives
            self._process.kill()
            code = -KILL
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        last = [one for one in lines if not one.startswith("note:")][-1:]  # Rust ends with advice
        said = f" It said: {last[0]}" if last else ""
        names = {number.value: number.name for number in signal.Signals}
        how = f"with {code}" if code >= 0 else f"by {names.get(-code, f'signal {-code}')}"
        short = "If memory was short, a smaller --budget or model needs less. " if code == -KILL else ""
        return EngineError(
            f"The engine's process has ended {how}.{said}",
            f"{short}/model NAME opens one again; h2o-chat --resume goes on with what was stored.",
        )


def _end(process: "subprocess.Popen[bytes]", pipe: "Connection[Any, Any]", words: IO[bytes]) -> None:
    pipe.close()
    words.close()
    process.kill()  # it has nothing to put away: what lasts is written on this side, or was in one move
    with suppress(subprocess.TimeoutExpired):  # the system takes it away when it can
        process.wait(ENDING_S)


FORWARDED = frozenset(
    {
        *("feed_again", "restore", "reset", "save", "load", "check", "protection", "budget_for"),
        *("expect_thoughts", "give_up_thoughts"),
        *("protect", "pin", "unpin", "evict_generated", "cache_state", "inspect", "held"),
    }
)
"""Methods of `Engine` that the other process runs, and nothing else."""


class EngineApart:
    """Stands in for an `Engine` in another process; `engine/engine.py` has its methods.

    Not thread-safe but for `watch`, like that one.
    """

    def __init__(self, process: _Process, tokenizer: Any, facts: EngineFacts) -> None:
        self._process, self.tokenizer = process, tokenizer
        self.session, self.eos = facts.session, facts.eos
        self._held = self._kept(facts.held)
        self.seen = 0
        self.pending: tuple[int, ...] = ()

    def generate(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        cancel: ShouldStop = never,
        others: Sequence[EarlierAnswer] = (),
    ) -> Iterator[Event]:
        """See `Engine.generate`. It may be some tokens ahead of the reader; a reader who leaves cancels it.

        Raises:
            EngineError: the process has ended. The tokens so far are as good as those of a stopped answer: a
                `Turn` says so, unless it was over: `interrupted` if nobody had asked to stop it.
        """
        text, read, over = [], 0, False
        try:
            for event in self._yielded("generate", list(ids), sampling, cancel=cancel, others=others):
                match event:
                    case Prompt():
                        read = event.tokens
                    case Token():
                        text.append(event.text)
                    case Turn():
                        over = True
                yield event
        except EngineError:
            if not over:
                seen, stopped = self.seen, not read or cancel()
                finish: Finish = "stopped" if stopped else "interrupted"
                yield Turn("".join(text), finish, read, len(text), 0.0, 0.0, seen, 0, seen, 0.0)
            raise

    def snapshot(self) -> RemoteObject:
        return self._kept(self._ask("snapshot"))

    def remade(self, settings: Settings) -> "EngineApart":
        return EngineApart(self._process, self.tokenizer, self._ask("remade", settings))

    def reseed(self, seed: int) -> None:
        self._ask("reseed", seed)
        self.session = replace(self.session, seed=seed)

    def watch(self, on: bool) -> None:
        """See `Engine.watch`; at any time, from any thread."""
        with suppress(EngineError):  # whoever asks something of it next is told
            self._process.over(self._process.begin(self._held, "watch", on))

    def __getattr__(self, name: str) -> Any:
        if name not in FORWARDED:
            raise AttributeError(name)
        return partial(self._ask, name)

    def close(self) -> None:
        """See `Engine.close`; ends the process, also for all engines `remade` from it."""
        self._process.end()

    def _kept(self, held: RemoteObject) -> RemoteObject:
        """Drops the object there when this handle is collected."""
        weakref.finalize(held, self._process.dropped.append, held.number)
        return held

    def _ask(self, name: str, *args: Any, tick: Callable[[Any], None] = unheard, **keywords: Any) -> Any:
        """The result of a method; `tick` gets what it yields."""
        replies = self._yielded(name, *args, **keywords)
        while True:
            try:
                tick(next(replies))
            except StopIteration as end:
                return end.value

    def _yielded(
        self, name: str, *args: Any, cancel: ShouldStop | None = None, **keywords: Any
    ) -> Generator[Any, None, Any]:
        """Runs a method: yields what it yields, then returns or raises."""
        cancels = cancel is not None
        call, over = self._process.begin(self._held, name, *args, cancels=cancels, **keywords), False
        try:
            while True:
                if cancel is not None and cancel():
                    self._process.cancel(call)
                    cancel = None
                match self._reply(call):
                    case CallReply(kind="yielded", value=values):
                        yield from values
                    case CallReply(kind="returned", value=value):
                        over = True
                        return value
                    case CallReply(kind="raised", value=error):
                        over = True
                        raise error
        finally:
            try:
                if not over:  # its reader has left: it ends before anything else is asked, so `seen` is right
                    if cancels:
                        self._process.cancel(call)
                    while (reply := self._reply(call)) is None or reply.kind == "yielded":
                        pass
            except EngineError:
                pass  # then there is nothing to stop
            finally:
                self._process.over(call)

    def _reply(self, call: int) -> CallReply | None:
        if reply := self._process.reply(call, LOOK_S):
            self.seen, self.pending = reply.seen, reply.pending
        return reply


def engine_apart(settings: Settings, progress: Progress) -> "Engine":
    """Opens an engine in a process of its own, see `engine_here`; EngineError: that process has ended."""
    try:
        process = _Process()
    except OSError as error:
        raise EngineError(f"A process for the engine cannot be started: {error}.") from error
    stage: tuple[str, float | None] = ("start", None)  # Python and torch, which takes seconds
    try:
        call = process.begin(None, "open", settings)
        progress(*stage)
        while True:
            match process.reply(call, HEARD_S):
                case None:
                    progress(*stage)
                case CallReply(kind="yielded", value=stages):
                    for stage in stages:
                        progress(*stage)
                case CallReply(kind="returned", value=(facts, tokenizer)):
                    process.over(call)
                    return cast("Engine", EngineApart(process, tokenizer, facts))
                case CallReply(kind="raised", value=error):
                    raise error
    except BaseException:
        process.end()
        raise
