"""Jobs in a thread, one at a time, and the queue of their reports.

Everything is put in the queue, exceptions too; beside an answer the screen empties it twelve times a second.
A Textual message for each token would fill its loop: none of 2,000 was joined to another.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from queue import SimpleQueue

from h2o_chat.base.errors import H2OChatError
from h2o_chat.base.progress import Progress
from h2o_chat.chat.commands.surface import ChatLike, Job, Opened
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.message import progress_words
from h2o_chat.chat.files.attached import AttachedFiles
from h2o_chat.events.events import Error, Event, ReadSoFar, Token
from h2o_chat.events.recording import Recorder

MOST_WAITING = 500
"""Length of the queue at which a job waits: a recording may be read faster than it can be shown."""

SHOWN_MESSAGES = 1000
"""Messages shown of a conversation that is opened; older ones are in the store."""
OpenChat = Callable[[Progress], ChatLike]


@dataclass(frozen=True)
class Stage:
    """Progress of loading; `share` is None while it is unknown. See `progress.Progress`."""

    name: str
    share: float | None


class Stopped(BaseException):
    """The person left, or stopped the loading. No `Exception`: what opens the model must not catch it."""


class Done:
    """The job is over, however it went."""


class JoinedTokens(str):
    """The text of all tokens since the last look."""


Report = Stage | Opened | Done | AttachedFiles | Event | BaseException | JoinedTokens
"""An exception ended a job: an H2OChatError, which a person can cause, or a bug."""


class Jobs:
    """At most one job at a time, in a thread: `start(lambda: jobs.work(...))`."""

    def __init__(self, recorder: Recorder | None = None) -> None:
        self.recorder = recorder
        self._reports: SimpleQueue[Report] = SimpleQueue()
        self._cancel = threading.Event()
        self._todo: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._over = threading.Event()
        self._over.set()
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Runs it in a daemon thread: it may be stuck, and the end of the process must not wait for it.

        One thread does all jobs: where memory is short Python can start no other, and would hang.
        """
        self._cancel.clear()
        self._over.clear()
        self._todo.put(work)
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._do, name="job", daemon=True)
            self._thread.start()

    def _do(self) -> None:
        while True:
            try:
                self._todo.get()()  # without a name, which would hold on to it
            finally:
                self._over.set()

    def wait(self) -> None:
        self._over.wait()

    def load(self, open_chat: OpenChat) -> None:
        """Open the conversation; `cancel` ends it at the next sign of progress."""

        def progress(stage: str, share: float | None) -> None:
            if self._cancel.is_set():
                raise Stopped
            self._reports.put(Stage(stage, share))

        try:
            self._report(Opened(open_chat(progress)))
        except BaseException as error:  # a panic of Rust is no `Exception`
            self._report(error)

    def load_instead(self, open_chat: OpenChat) -> None:
        self.load(open_chat)
        self._reports.put(Done())

    def work(self, job: Job) -> None:
        """Run a job to its end, or to where it was cancelled."""

        def progress(so_far: ReadSoFar) -> None:
            self._reports.put(Stage(f"reading again {progress_words(so_far)}", so_far.share))

        try:
            for report in job(self._cancel.is_set, progress):
                self._report(report)
                while self._reports.qsize() > MOST_WAITING and not self._cancel.is_set():
                    time.sleep(0.005)
        except BaseException as error:
            self._report(error)
        self._reports.put(Done())

    def cancel(self) -> None:
        self._cancel.set()

    @property
    def cancelled(self) -> bool:
        """Whether the job, the present or the last one, was told to stop."""
        return self._cancel.is_set()

    def read(self, files: AttachedFiles) -> None:
        """Read the files of a message in a thread of their own; a report follows."""
        files.begin(self._reports.put)

    def drain(self) -> Iterator[Report]:
        """Yields all reports since the last time; the text of tokens follows in one piece."""
        waiting = [self._reports.get() for _ in range(self._reports.qsize())]  # it may never be empty
        for kind, reports in groupby(waiting, type):
            together = list(reports)
            yield from together
            if kind is Token:
                yield JoinedTokens("".join(one.text for one in together if isinstance(one, Token)))

    def _report(self, report: Report) -> None:
        if self.recorder is not None:
            for event in _events(report):
                if note := self.recorder.write(event):
                    self._reports.put(note)
        self._reports.put(report)


def _events(report: Report) -> Iterator[Event]:
    match report:
        case Opened(Chat() as chat):
            yield from chat.opening()
        case Stage() | Opened() | Stopped() | Done() | AttachedFiles() | JoinedTokens():
            return
        case H2OChatError(code=code, message=message, hint=hint):
            yield Error(code, message, hint)
        case BaseException() as error:
            yield Error("bug", f"{type(error).__name__}: {error}", "")
        case _:
            yield report
