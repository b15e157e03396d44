"""The conversation's half of the screen: the transcript, what goes on, and below it an entry."""

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.reactive import reactive
from textual.widget import Widget

from h2o_chat.events import Said, Turn
from h2o_chat.tui.divider import Divider
from h2o_chat.tui.greeting import greeting
from h2o_chat.tui.transcript import Transcript
from h2o_chat.tui.work import SHOWN_MESSAGES, ChatLike, Job, Jobs


class Pane(Vertical):
    """Shows what is reported of a conversation; `TalkPane` and `ReplayPane` say what there is to do with it.

    Attributes:
        chat: The conversation, None until one is open.
        jobs: What runs in a thread, and its reports.
        busy: Whether such a job is running.
        failed: No conversation will ever be open: the first could not be opened.
    """

    READING: ClassVar[str] = "reading"
    ANSWERING: ClassVar[str] = "answering"
    UNENDED: ClassVar[str] = "error"
    """How an answer ended that nothing more is said about."""
    STOPS: ClassVar[bool] = True
    """Whether a job can be stopped."""

    busy: reactive[bool] = reactive(False, bindings=True)

    def __init__(self, jobs: Jobs) -> None:
        super().__init__(id="chat")
        self.chat: ChatLike | None = None
        self.jobs = jobs
        self.failed = False
        self.transcript = Transcript(id="transcript")
        self.divider = Divider(id="divider")

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield from self.above_the_line()
        yield self.divider
        with Horizontal(id="entry"):
            yield from self.entry()

    def above_the_line(self) -> list[Widget]:
        """What stands between the transcript and the line."""
        return []

    def entry(self) -> list[Widget]:
        """What stands below the line."""
        return []

    @property
    def selected_text(self) -> str:
        """What is selected in the entry."""
        return ""

    def begin(self, job: Job, doing: str) -> None:
        """Run a job; what it reports comes back to the methods below."""
        self.start(lambda: self.jobs.work(job), doing)

    def start(self, work: Callable[[], None], doing: str) -> None:
        """Give `jobs` a thread; its last report is `Done`."""
        self.divider.doing(doing)
        self.busy = True
        self.jobs.begin()
        self.run_worker(work, thread=True)

    # What a job reports

    def opened(self, chat: ChatLike) -> None:
        """Show a conversation from its beginning."""
        self.chat = chat
        self.transcript.clear()
        self.transcript.note(greeting(chat.session))
        earlier = max(len(chat.messages) - SHOWN_MESSAGES, 0)
        if earlier:
            self.transcript.note(f"{earlier} earlier messages are not shown here (h2o-chat sessions show)")
        for index, message in enumerate(chat.messages[earlier:], earlier):
            hold = message.hold if message.first >= 0 else None
            name = self._speaker(message.role)
            self.transcript.message(message.role, name, message.text, index, message.finish, hold)
        for note in chat.take_notes():
            self.transcript.notice(note.message, note.hint)

    def broke(self) -> None:
        """The first conversation could not be opened."""
        self.failed = True
        self.divider.doing("nothing is open · ctrl+q quits")

    def said(self, said: Said) -> None:
        """A message takes its place; behind one of the user an answer begins."""
        if said.role == "assistant" and said.index == self.transcript.answering:
            self.transcript.close_answer(said.finish or "eos", said.text)
            if said.hold is not None:
                self.transcript.show_message_hold(said.index, said.hold)
            return
        self.transcript.close_answer("interrupted")
        self.transcript.cut(said.index)
        name = self._speaker(said.role)
        self.transcript.message(said.role, name, said.text, said.index, said.finish, said.hold)
        if said.role == "user":
            self.transcript.open_answer(self._speaker("assistant"), said.index + 1)
            self.transcript.follow()
            self.divider.doing(self.READING)

    def read(self) -> None:
        """The prompt was read."""
        self.divider.doing(self.ANSWERING)

    def ended(self, turn: Turn) -> None:
        """The answer is whole."""
        self.transcript.close_answer(turn.finish, turn.text)
        self.transcript.show_hold(turn)

    def unsaid(self) -> None:
        """The prompt was stopped before it was read: the model has not seen it."""
        self.transcript.withdraw()
        self.divider.say("stopped while reading · nothing was sent")

    def done(self) -> None:
        """The job is over."""
        self.busy = False
        self.divider.doing("")
        self.transcript.close_answer(self.UNENDED)  # unless a turn event has closed it

    def _speaker(self, role: str) -> str:
        model = self.chat.session.model.rsplit("/", 1)[-1] if self.chat else "model"
        return {"user": "you", "assistant": model}.get(role, role)
