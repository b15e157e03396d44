"""The two jobs that run in threads, loading and answering, and the queue through which they report.

Whatever happens is put in the queue, exceptions too; the screen empties it about twenty times a second.
One message per token would drown its loop (2,000 of 2,000 are delivered one by one).
"""

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from h2o_chat.config import Sampling
from h2o_chat.errors import H2OChatError
from h2o_chat.events import Event, Note, Session, Token

Progress = Callable[[str, float | None], None]


class ChatLike(Protocol):
    """What the screen needs of a conversation; a recording has it as well as a model."""

    session: Session
    messages: list[Any]

    def send(self, text: str, sampling: Sampling, cancel: Callable[[], bool]) -> Iterator[Event]: ...
    def take_notes(self) -> Iterator[Note]: ...


OpenChat = Callable[[Progress], ChatLike]


@dataclass(frozen=True)
class Stage:
    """Loading has come this far; `share` is None while nobody can tell."""

    name: str
    share: float | None


@dataclass(frozen=True)
class Opened:
    """The model is ready."""

    chat: ChatLike


@dataclass(frozen=True)
class Failed:
    """A job ended with an error that a person can cause or meet."""

    error: H2OChatError


@dataclass(frozen=True)
class Crashed:
    """A job ended with an error of our own making."""

    error: Exception
    trace: str


@dataclass(frozen=True)
class Answered:
    """The answering job is over, however it went."""


@dataclass(frozen=True)
class Text:
    """The text of all tokens since the last report, in one piece."""

    text: str


Report = Stage | Opened | Failed | Crashed | Answered | Event


class Jobs:
    """At most one job at a time, each in the thread that calls `load` or `answer`."""

    def __init__(self) -> None:
        self._reports: SimpleQueue[Report] = SimpleQueue()
        self._cancel = threading.Event()

    def load(self, open_chat: OpenChat) -> None:
        """Open the conversation; `cancel` ends it at the next sign of progress."""

        def progress(stage: str, share: float | None) -> None:
            if self._cancel.is_set():
                raise _Left
            self._reports.put(Stage(stage, share))

        with self._reporting():
            self._reports.put(Opened(open_chat(progress)))

    def answer(self, chat: ChatLike, text: str, sampling: Sampling) -> None:
        """Run one turn; the engine asks between any two steps whether it was cancelled."""
        with self._reporting():
            for event in chat.send(text, sampling, self._cancel.is_set):
                self._reports.put(event)
        self._reports.put(Answered())

    def begin(self) -> None:
        """Forget an earlier `cancel`; called before a job is given its thread."""
        self._cancel.clear()

    def cancel(self) -> None:
        """Ask the job to end at its next step."""
        self._cancel.set()

    def drain(self) -> Iterator[Report | Text]:
        """Everything reported since the last time; tokens are followed by their text in one piece."""
        pieces: list[str] = []
        while True:
            try:
                report = self._reports.get_nowait()
            except Empty:
                break
            if pieces and not isinstance(report, Token):
                yield Text("".join(pieces))
                pieces.clear()
            yield report
            if isinstance(report, Token):
                pieces.append(report.text)
        if pieces:
            yield Text("".join(pieces))

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Puts what was raised into the queue: nothing that happens in a thread may be lost."""
        try:
            yield
        except _Left:
            pass
        except H2OChatError as error:
            self._reports.put(Failed(error))
        except Exception as error:
            self._reports.put(Crashed(error, traceback.format_exc()))


class _Left(Exception):
    """The person left while the model was loading."""
