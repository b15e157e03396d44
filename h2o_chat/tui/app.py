"""The chat screen: one conversation beside what the model still remembers of it.

It paints first and loads in a thread. Threads report through one queue, which a timer empties; every
change that is not the answer to a key starts in `_take`.
"""

from time import monotonic
from typing import Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Resize
from textual.reactive import reactive
from textual.widgets import Footer, Static

from h2o_chat.config import Sampling, Settings
from h2o_chat.errors import ExitCode, H2OChatError
from h2o_chat.events import CacheState, Error, Note, Prompt, Session, Token, Turn
from h2o_chat.tui import work
from h2o_chat.tui.crash import save_trace
from h2o_chat.tui.divider import Divider
from h2o_chat.tui.greeting import greeting
from h2o_chat.tui.loading import Loading
from h2o_chat.tui.memory import Memory
from h2o_chat.tui.panel import MemoryLine, MemoryPanel
from h2o_chat.tui.prompt import PromptBox
from h2o_chat.tui.status import StatusLine
from h2o_chat.tui.theme import H2O_DARK
from h2o_chat.tui.transcript import Transcript

DRAINS_A_SECOND = 20
LEAVE_SECONDS = 2.0
"""A second ctrl+c within this time leaves."""
RESUMED_MESSAGES = 200
"""Shown of a conversation that is resumed: what is older is in the store."""
FOLD_BELOW = 100
"""Columns under which the panel becomes one line."""


class ChatApp(App[None], inherit_bindings=False):
    """The whole screen.

    Args:
        open_chat: Opens the conversation; called in a thread, reports its progress, may take minutes.
        settings: What was asked for; shown while loading.
        sampling: How answers are made.

    Attributes:
        chat: The conversation, None until it is open.
        busy: Whether an answer is being made.
        exit_code: What the process should end with: the reason why no model could be opened, or 0.
    """

    CSS_PATH = "app.tcss"
    TITLE = "h2o-chat"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "stop", "stop"),
        Binding("ctrl+c", "interrupt", "stop, twice: quit", system=True),
        Binding("ctrl+b", "toggle_panel", "memory"),
        Binding("ctrl+q", "quit", "quit", priority=True),
    ]

    busy: reactive[bool] = reactive(False, bindings=True)

    def __init__(self, open_chat: work.OpenChat, settings: Settings, sampling: Sampling) -> None:
        super().__init__()
        self.chat: work.ChatLike | None = None
        self.exit_code = ExitCode.OK
        self._open_chat = open_chat
        self._system = settings.system
        self._sampling = sampling
        self._memory = Memory()
        self._jobs = work.Jobs()
        self._loading = Loading(settings.model or "the bundled model")
        self._panel_wanted = True
        self._columns = 0
        self._interrupted = float("-inf")
        self._asked = ""

    def compose(self) -> ComposeResult:
        yield StatusLine(self._memory, id="status")
        with Horizontal(id="middle"):
            with Vertical(id="chat"):
                yield Transcript(id="transcript")
                yield Divider(id="divider")
                with Horizontal(id="entry"):
                    yield Static("❯", id="sign", markup=False)
                    yield PromptBox(self._send, id="prompt")
            yield MemoryPanel(self._memory, id="panel")
        yield MemoryLine(self._memory, id="line")
        yield Footer()

    def on_mount(self) -> None:
        self.register_theme(H2O_DARK)
        self.theme = H2O_DARK.name
        self.transcript = self.query_one(Transcript)
        self.divider = self.query_one(Divider)
        self.prompt = self.query_one(PromptBox)
        self.query_one("#entry").border_subtitle = "enter send · ctrl+j newline · esc stop"
        self.prompt.focus()
        self.transcript.mount(self._loading)
        self.set_interval(1 / DRAINS_A_SECOND, self._drain)
        self.run_worker(lambda: self._jobs.load(self._open_chat), thread=True)

    def exit(self, *args: Any, **kwargs: Any) -> None:
        # The thread must not outlive the screen by more than the step it is in.
        self._jobs.cancel()
        super().exit(*args, **kwargs)

    # What the threads report

    def _drain(self) -> None:
        reports = list(self._jobs.drain())
        for report in reports:
            self._take(report)
        if reports:
            self._refresh_numbers()

    def _take(self, report: work.Report | work.Text) -> None:
        match report:
            case work.Stage():
                self._loading.show(report)
            case work.Opened():
                self._opened(report.chat)
            case work.Text():
                self.transcript.stream(report.text)
            case Token() | Session() | CacheState():
                self._memory.add(report)
            case Prompt():
                self.divider.doing("answering · esc stops")
            case Turn(finish="stopped", prompt_tokens=0):
                self._memory.add(report)
                self._unsaid()
            case Turn():
                self._memory.add(report)
                self.transcript.close_answer(report.finish, report.text)
                self.transcript.show_hold(report)
            case Note():
                self.transcript.notice(report.message, report.hint)
            case Error():
                self.transcript.error(report.code, report.message, report.hint)
            case work.Failed():
                self._failed(report.error)
            case work.Crashed():
                self._crashed(report)
            case work.Answered():
                self._answered()

    def _opened(self, chat: work.ChatLike) -> None:
        self.chat = chat
        self._loading.remove()
        self._memory.add(chat.session)
        self.transcript.note(greeting(chat.session))
        self._show_messages(chat)
        for note in chat.take_notes():
            self.transcript.notice(note.message, note.hint)

    def _show_messages(self, chat: work.ChatLike) -> None:
        """What was said before the screen opened: the system prompt, or all of a resumed conversation."""
        earlier = len(chat.messages) - RESUMED_MESSAGES
        if earlier > 0:
            self.transcript.note(f"{earlier} earlier messages are not shown here (h2o-chat sessions show)")
        model = chat.session.model.rsplit("/", 1)[-1]
        names = {"user": "you", "assistant": model}
        for index, message in enumerate(chat.messages):
            if index >= earlier:
                name = names.get(message.role, message.role)
                self.transcript.message(message.role, name, message.text, index, message.finish)

    def _failed(self, error: H2OChatError) -> None:
        self.transcript.error(error.code, error.message, error.hint)
        self._job_broke(error.exit_code)

    def _crashed(self, report: work.Crashed) -> None:
        what = f"{type(report.error).__name__}: {report.error}"
        hint = f"This is a bug of h2o-chat. The traceback is in {save_trace(report.trace)}"
        self.transcript.error("bug", what, hint)
        self._job_broke(ExitCode.BUG)

    def _job_broke(self, code: ExitCode) -> None:
        """A chat that could not be opened decides how the process ends; a broken answer does not."""
        if self.chat is None:
            self.exit_code = code
            self._loading.fail()
            self.divider.doing("no model is open · ctrl+q quits")

    def _unsaid(self) -> None:
        """The prompt was stopped before it was read: the model has not seen it, so it may be sent again."""
        self.transcript.withdraw()
        kept = not self.prompt.text
        if kept:
            self.prompt.text = self._asked
            self.prompt.move_cursor(self.prompt.document.end)
        self.divider.say(f"stopped while reading · nothing was sent{' · your text is back' if kept else ''}")

    def _answered(self) -> None:
        self.busy = False
        self.divider.doing("")
        self.transcript.close_answer("error")  # unless a turn event has closed it

    # What the person does

    def _send(self, text: str) -> bool:
        """Send the text; or say why not, and it stays in the box."""
        if self.chat is None:
            waiting = "no model is open" if self.exit_code else "still loading"
            self.divider.say(f"{waiting} · your text stays here")
            return False
        if self.busy:
            self.divider.say("still answering · esc stops it, then enter sends")
            return False
        self._ask(self.chat, text)
        return True

    def _ask(self, chat: work.ChatLike, text: str) -> None:
        self._asked = text
        index = len(chat.messages)
        self.transcript.message("user", "you", text, index)
        self.transcript.open_answer(chat.session.model.rsplit("/", 1)[-1], index + 1)
        self.transcript.follow()
        self.divider.doing("reading · esc stops")
        self.busy = True
        self._jobs.begin()
        self.run_worker(lambda: self._jobs.answer(chat, text, self._sampling), thread=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that would do nothing now are neither bound nor shown."""
        return self.busy if action == "stop" else super().check_action(action, parameters)

    def action_stop(self) -> None:
        """Stop the answer and keep what there is of it."""
        self._jobs.cancel()
        self.divider.doing("stopping")

    def action_interrupt(self) -> None:
        """Ctrl+c: copy a selection; else stop, and leave when pressed again at once."""
        now = monotonic()
        if now - self._interrupted < LEAVE_SECONDS:
            self.exit()
            return
        selected = "" if self.busy else self.prompt.selected_text or self.screen.get_selected_text()
        if selected:
            self.copy_to_clipboard(selected)
            self.divider.say("copied")
            return
        self._interrupted = now
        if self.busy:
            self.action_stop()
        self.divider.say("ctrl+c again leaves", LEAVE_SECONDS)

    def action_toggle_panel(self) -> None:
        """Hide or show the memory panel."""
        self._panel_wanted = not self._panel_wanted
        self._fold()

    # Layout

    def on_resize(self, event: Resize) -> None:
        self._columns = event.size.width
        self._fold()

    def _fold(self) -> None:
        wide = self._columns >= FOLD_BELOW
        self.query_one(MemoryPanel).display = wide and self._panel_wanted
        self.query_one(MemoryLine).display = not wide and self._panel_wanted

    def _refresh_numbers(self) -> None:
        for widget in self.query("StatusLine, MemoryPanel, MemoryLine"):
            widget.refresh()
