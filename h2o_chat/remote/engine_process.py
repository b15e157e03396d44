"""The process in which an engine runs beside a screen (`engine_apart`): it answers one call after another.

`Call`s and `Cancel`s come over one pipe, `CallReply`s go back. While an answer is generated the pipe is read
before every step, where the engine asks whether it was cancelled: other calls are answered there, where the
state is complete.
"""

import os
import select
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from pickle import PicklingError
from time import perf_counter
from typing import Any, Literal, NamedTuple

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import H2OChatError
from h2o_chat.base.system import ENDING
from h2o_chat.events.events import Event, Session, Token

QUICK_S = 0.02
"""Tokens closer together than this share one message."""


@dataclass(frozen=True)
class RemoteObject:
    """An object in the engine's process, by its number there: an engine, or a snapshot."""

    number: int


class EngineFacts(NamedTuple):
    """The facts about an engine that the screen's side keeps."""

    held: RemoteObject
    session: Session
    eos: frozenset[int]


@dataclass(frozen=True)
class Call:
    number: int
    """Later calls have higher numbers."""
    engine: RemoteObject | None
    """None before there is any: `open`."""
    name: str
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    cancels: bool
    """It takes `cancel`: a `Cancel` may follow."""
    dropped: Sequence[int]
    """Numbers of objects that the caller no longer holds."""


@dataclass(frozen=True)
class Cancel:
    call: int


@dataclass(frozen=True)
class CallReply:
    """A reply to a call: a list of what it `yielded`, and at the end what it `returned` or `raised`."""

    call: int
    kind: Literal["yielded", "returned", "raised"]
    value: Any
    seen: int
    """Tokens its engine has seen by now."""
    pending: tuple[int, ...]


def together(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Joins quick tokens: each message wakes the other process, which costs a small model 6% of a token.

    Slow tokens and other events are sent at once, behind the tokens that wait.
    """
    waiting, was_token, came, sent = list[Event](), False, 0.0, 0.0
    for event in events:
        now, is_token = perf_counter(), isinstance(event, Token)
        quick, was_token, came = is_token and was_token and now - came < QUICK_S, is_token, now
        waiting.append(event)
        if not quick or now - sent >= QUICK_S:
            yield waiting
            waiting, sent = [], now
    if waiting:
        yield waiting


class _Serving:
    def __init__(self, pipe: "Connection[Any, Any]") -> None:
        self._pipe = pipe
        self._asked = select.poll()  # `Connection.poll` makes one each time: that takes longer than to send
        self._asked.register(pipe.fileno(), select.POLLIN)
        self._held: dict[int, Any] = {}
        self._numbers = count()
        self._cancelled = 0  # the call that was cancelled last; only one at a time can be

    def take(self, message: Call | Cancel) -> None:
        if isinstance(message, Cancel):
            self._cancelled = message.call
            return
        for number in message.dropped:
            del self._held[number]
        engine = None if message.engine is None else self._held[message.engine.number]
        try:
            kind, value = "returned", self._value(message, engine)
        except Exception as error:
            kind, value = "raised", _for_others(error)
        try:
            self._reply(message.number, kind, value, engine)
        except (TypeError, AttributeError, PicklingError) as error:  # nothing was sent
            self._reply(message.number, "raised", _for_others(error), engine)

    def _value(self, call: Call, engine: Any) -> Any:
        """Runs the call; what it yields is sent on the way."""
        if call.name == "open":
            return self._open(call.number, *call.args)
        args = [self._held[one.number] if isinstance(one, RemoteObject) else one for one in call.args]
        keywords = dict(call.keywords)

        def cancelled() -> bool:
            # Messages behind a `Cancel` wait until this is over.
            while self._cancelled != call.number and self._asked.poll(0):
                self.take(self._pipe.recv())
            return self._cancelled == call.number

        if call.cancels:
            keywords["cancel"] = cancelled
        if call.name == "feed_again":
            keywords["tick"] = lambda fed: self._reply(call.number, "yielded", [fed], engine)
        value = getattr(engine, call.name)(*args, **keywords)
        match call.name:
            case "generate":
                for events in together(value):
                    self._reply(call.number, "yielded", events, engine)
                return None
            case "snapshot":
                return self._keep(value)
            case "remade":
                return self._registered(value)
        return value

    def _open(self, number: int, settings: Settings) -> tuple[EngineFacts, Any]:
        """Opens the first engine; returns it and its tokenizer, and sends its progress."""
        from h2o_chat.models.hub import stay_offline
        from h2o_chat.remote.engine_here import engine_here

        stay_offline()
        engine = engine_here(settings, lambda *progress: self._reply(number, "yielded", [progress]))
        return self._registered(engine), engine.tokenizer

    def _registered(self, engine: Any) -> EngineFacts:
        return EngineFacts(self._keep(engine), engine.session, engine.eos)

    def _keep(self, value: Any) -> RemoteObject:
        number = next(self._numbers)
        self._held[number] = value
        return RemoteObject(number)

    def _reply(self, call: int, kind: Any, value: Any, engine: Any = None) -> None:
        seen, pending = (0, ()) if engine is None else (engine.seen, engine.pending)
        self._pipe.send(CallReply(call, kind, value, seen, pending))


def _for_others(error: Exception) -> Exception:
    """The error for the screen's side: expected errors as they are, others by name."""
    is_pythons = isinstance(error, OSError) and type(error).__module__ == "builtins"
    known = isinstance(error, H2OChatError) or is_pythons
    if not known:
        error = RuntimeError(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)
    error.add_note("In the engine's process:\n" + "".join(traceback.format_tb(error.__traceback__)))
    return error


def serve(pipe: "Connection[Any, Any]") -> None:
    """Serves until nobody is at the other end."""
    serving = _Serving(pipe)
    try:
        while True:
            serving.take(pipe.recv())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        # Python would walk through all of torch once more, and nobody waits for what it would find.
        os._exit(0)


def main() -> None:
    """Runs the process; its argument is the number of the socket."""
    # Whoever ends all of a session means the screen, which stops the answer and saves the memory, with this.
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    os.set_inheritable(int(sys.argv[1]), False)  # or a child of a library would keep it open
    serve(Connection(int(sys.argv[1])))
