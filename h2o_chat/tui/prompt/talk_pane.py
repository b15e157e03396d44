"""The pane with a prompt box: text is sent, commands are run."""

from collections.abc import Callable
from functools import partial

from textual.binding import Binding, BindingType
from textual.widgets import Static

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import H2OChatError, UsageError
from h2o_chat.chat.commands import table
from h2o_chat.chat.commands.surface import ChatLike
from h2o_chat.chat.conversation import going_back
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.tool_rounds import send_and_call
from h2o_chat.chat.files.attached import AttachedFiles
from h2o_chat.events.events import Said, Turn
from h2o_chat.tui.pane.jobs import Jobs, OpenChat, Report
from h2o_chat.tui.pane.pane import Pane
from h2o_chat.tui.prompt.completion_menu import Menu
from h2o_chat.tui.prompt.first_minute import FirstMinute
from h2o_chat.tui.prompt.outbox import Editing, Outbox, Outgoing
from h2o_chat.tui.prompt.prompt_box import PromptBox, PromptHistory

STORE_S = 0.5
"""Between two tries to write what waits."""

NOT_SENT = "what waited was not sent · it is back"
AT_ONCE = ("help", "theme", "quiet", "editor", "quit")
"""Commands that need no model: they do not wait until one is open."""
HINT = "enter send · ctrl+j newline · esc stop"

KEYS: list[BindingType] = [
    Binding("escape", "give_up", "give up", tooltip="leave the message that is edited as it was"),
    Binding(
        "ctrl+r", "act('regenerate')", "again", priority=True, tooltip="answer the last message once more"
    ),
    Binding("e", "act('edit chosen')", "edit", tooltip="chosen: say something else instead of the message"),
    Binding("p", "act('pin chosen')", "pin", tooltip="chosen: protect the message, or let it be forgotten"),
    Binding("b", "act('branch')", "branch", tooltip="chosen: go to what was said there before, and back"),
    # The box would go to the end of the line, which the end key does.
    Binding(
        *("ctrl+e", "act('edit last')", "edit last"),
        priority=True,
        show=False,
        tooltip="say something else instead of your last message",
    ),
    Binding("ctrl+n", "act('new')", "new", priority=True, tooltip="begin another conversation"),
    Binding(
        *("ctrl+o", "act('open')", "open"),
        priority=True,
        tooltip="stored conversations: find, open, rename, remove",
    ),
    Binding("f2", "act('set')", "settings", priority=True, show=False),
    Binding(
        *("f3", "act('more room')", "room"),
        priority=True,
        show=False,
        tooltip="slots for the whole conversation",
    ),
    Binding("f3", "act('more room later')", show=False, priority=True),
    Binding("ctrl+r,ctrl+n,ctrl+o,ctrl+e,f2", "act('wait')", show=False, priority=True),
]
LATER = " · try again when it has finished"
WHILE_BUSY = (("wait",), ("more room later",))
LETTERS = (("edit chosen",), ("branch",), ("pin chosen",))
"""Names of `act` that concern the chosen message."""


class NotNow(UsageError):
    """A command needs the conversation, which a job has."""


def _about_before(before: Chat, chat: ChatLike) -> tuple[str, str]:
    """A remark on the conversation before, and a hint: how it is opened, how this model is asked the same."""
    keeper, hint = before.keeper, ""
    stored = keeper is not None and keeper.conversation is not None and keeper.store.folder is not None
    if not _asked(chat):
        hint = "up brings back your question: ask this model the same."
    if stored:
        return "The conversation before is kept.", f"ctrl+o opens it. {hint}".strip()
    return "The conversation before was not stored: it is gone.", hint


def _asked(chat: ChatLike) -> bool:
    return any(one.role == "user" for one in chat.messages)


def _write_later(pane: "TalkPane") -> None:
    """While nothing runs: another try to write what waits for another process; shows its notes."""
    if (talk := pane.ready) is not None and talk.keeper and talk.keeper.waiting:
        talk.keeper.flush()
        for note in talk.take_notes():
            pane.on_note(note)


class TalkPane(Pane):
    """The pane with a prompt box.

    Args:
        history: of prompts; None begins empty.
        opener_of: opens a model by its name, for a stored conversation by its id; None: there is only one.
    """

    STOP_HINT = " · esc stops"
    BINDINGS = KEYS

    def __init__(
        self,
        jobs: Jobs,
        sampling: Sampling,
        history: PromptHistory | None = None,
        opener_of: Callable[[str, str | None], OpenChat] | None = None,
    ) -> None:
        super().__init__(jobs)
        self.menu = Menu(id="menu")
        self.prompt = PromptBox(self.submit, self.menu, history)
        self.sampling = sampling
        self.opener_of = opener_of
        self.pins_next = False  # the next message is protected as it is sent
        self.transcript.needs_choice = True
        self.editing = Editing(self.prompt, self.transcript, self.divider)
        self.outbox = Outbox(self.editing, id="outbox")
        self.above_the_line = [self.menu, self.outbox]
        self.entry = [Static("❯", id="sign", markup=False), self.prompt]
        self.prompt.return_newest = self.outbox.return_newest
        self.current = Outgoing()
        self.offers = FirstMinute(self.prompt, self.transcript, history, self.submit, self.write_hint)

    def on_mount(self) -> None:
        self.write_hint()
        self.prompt.focus()
        self.set_interval(STORE_S, partial(_write_later, self))

    def act(self, name: str, words: str) -> None:
        """Do what a command or a key does, see `screen_commands.ACTS`."""

    def idle(self) -> Chat:
        if (talk := self.ready) is None:
            raise NotNow(f"Not now: {self._goes_on}.")
        return talk

    @property
    def _goes_on(self) -> str:
        doing = self.divider.goes_on.split(" · ")[0] or "opening the model"
        return "no model is open" if self.failed else f"it is {doing}"

    def write_hint(self) -> None:
        pinned = "the next message is pinned · " if self.pins_next else ""
        self.query_one("#entry").border_subtitle = pinned + (self.offers.keys or HINT)

    @property
    def ready(self) -> Chat | None:
        """The conversation, while no job runs."""
        return self.chat if isinstance(self.chat, Chat) and not self.busy else None

    # Reports of a job

    def on_opened(self, chat: ChatLike) -> None:
        before = self.chat
        super().on_opened(chat)
        if isinstance(before, Chat) and before is not chat and _asked(before):
            self.transcript.messages.note(*_about_before(before, chat))
        if isinstance(chat, Chat):
            self.sampling = chat.makers.complete(self.sampling)
        self.current.state = "answering"
        if self.outbox.files is not None:
            self._return_all("")  # it was meant for what was open before
        if not self.busy:
            self.call_after_refresh(self.send_next)

    def broke(self) -> None:
        super().broke()
        self._return_all("")

    def on_not_opened(self) -> None:
        super().on_not_opened()
        self.current.failed = True

    def on_turn(self, turn: Turn) -> None:
        super().on_turn(turn)
        self.current.answered, self.current.failed = True, turn.finish == "error"

    def on_said(self, said: Said) -> None:
        current = self.current
        if current.state == "sent" and said.index == current.drawn_index:
            current.state = "answering"
            return
        super().on_said(said)
        if current.state == "sent" and current.edits in (said.index, None):
            current.state = "answering"

    def on_withdrawn(self) -> None:
        super().on_withdrawn()
        if self.current.answered:
            self.divider.say("stopped while the tool's results were read")
        else:
            self.current.state = "withdrawn"

    def on_done(self) -> None:
        sent = self.current
        if sent.state == "sent" and sent.drawn_index is not None:  # never said: the engine is gone
            self.transcript.messages.withdraw()
        super().on_done()
        if isinstance(self.chat, Chat):
            self.transcript.messages.show_marks(self.chat.messages)
        if sent.state == "answering":
            if sent.fork is not None:
                self.transcript.select(sent.fork, chosen=sent.chosen and self.transcript.has_focus)
            if sent.edits is not None:
                self.divider.say("what was said before is kept · /branch goes there")
            if self.editing.index is None:
                self.editing.restore_draft()
        else:
            self.divider.say(self.editing.return_unsent(sent))
            self.pins_next = self.pins_next or (sent.pins and bool(sent.typed))
            self.write_hint()
        if sent.failed and self.outbox:
            self._return_all(NOT_SENT)
        else:
            self.send_next()

    def on_report(self, report: Report) -> None:
        self.offers.on_report(report)

    # Keys and texts

    def submit(self, text: str) -> bool:
        """Send the text or run its command, once a model is open; False leaves it in the box."""
        self.divider.say("")
        try:
            parsed = table.parse(text)
        except UsageError as error:
            self.show_error(error)
            return False
        if not isinstance(parsed, str) and (self.stages is None or parsed[0].name in AT_ONCE):
            return self._run(parsed[0].name, parsed[1], text)
        if self.failed:
            self.divider.say("no model is open · your text stays here")
            return False
        if self.stages is not None:
            how = "sent" if isinstance(parsed, str) else "done"
            self.divider.say(f"{how} as soon as the model is open", 1.5)
        self.outbox.add(text, self.editing.end())
        self.send_next()
        return True

    def _run(self, name: str, words: str, typed: str = "") -> bool:
        """Run what a key does, or a command; `typed` too early it waits. False: it was refused."""
        shown = len(self.transcript.messages.views)
        try:
            self.act(name, words)
        except H2OChatError as error:
            if typed and isinstance(error, NotNow) and not self.failed:
                self.outbox.add_once(typed)
                return True
            self.show_error(error)
            return False
        if len(self.transcript.messages.views) > shown:  # an answer stands at the end: to be seen
            self.transcript.window.follow()
        return True

    def send_next(self) -> None:
        """Send or run what waits, up to the first that takes time or asks something."""
        screens = len(self.app.screen_stack)
        while (talk := self.ready) is not None and len(self.app.screen_stack) == screens:
            if (due := self.outbox.due(self.jobs.read)) is None:
                break
            message, parsed = due
            if isinstance(parsed, str):
                self._send_or_edit(talk, message, parsed)
            elif not self._run(parsed[0].name, parsed[1]) and self.outbox:
                self._return_all(NOT_SENT)
        if self.outbox.files is not None:
            self.divider.doing("reading files · esc gives up")
            self.app.refresh_bindings()

    def _send_or_edit(self, talk: Chat, message: Outgoing, text: str) -> None:
        if (index := message.edits) is None:
            return self.start_turn(talk, message, text)
        self.current, message.state = message, "sent"
        self.begin(
            lambda cancel, progress: going_back.edit(talk, index, text, self.sampling, cancel, progress),
            "going back · esc stops",
        )

    def on_files_read(self, files: AttachedFiles) -> None:
        if files is not self.outbox.files:
            return  # nobody waits for them any more
        if files.error:
            self.show_error(files.error)
            self._return_all("")
        elif (talk := self.ready) is None:
            self.outbox.read_later()
        else:
            self._send_or_edit(talk, self.outbox.take(), files.text)

    def _return_all(self, why: str) -> None:
        left_out = self.outbox.return_all()
        if not self.busy and not self.failed and self.editing.index is None:
            self.divider.doing("")
        self.divider.say(" · ".join(filter(None, (why, left_out and f"not done: {left_out}"))))
        self.app.refresh_bindings()

    @property
    def stoppable(self) -> bool:
        return bool(self.outbox) or super().stoppable

    def stop(self) -> None:
        if self.outbox:
            files = self.outbox.files is not None
            self._return_all("stopped reading files · your text is back" if files else "")
        if super().stoppable:
            super().stop()

    def start_turn(self, talk: Chat, message: Outgoing, text: str) -> None:
        self.offers.on_sent()
        index = len(talk.messages)
        pin, self.pins_next = self.pins_next, False
        self.current, message.state, message.pins = message, "sent", pin
        if not pin:  # a pin may be refused: then nothing is said
            super().on_said(Said(index, "user", text))
            message.drawn_index = index
        self.write_hint()
        self.begin(
            lambda cancel, _: send_and_call(talk, text, self.sampling, cancel, pin=pin),
            f"reading{self.STOP_HINT}",
        )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "give_up":
            return self.editing.index is not None and not self.stoppable
        if action == "act":
            wanted = (self.ready is None) == (parameters in WHILE_BUSY)
            return self.transcript.letters if parameters in LETTERS else wanted
        return super().check_action(action, parameters)

    def action_give_up(self) -> None:
        self.editing.give_up()

    def action_act(self, name: str) -> None:
        # Letters are no text while a message is chosen, whatever goes on.
        self.divider.say("" if self.ready else f"not now: {self._goes_on}{'' if self.failed else LATER}")
        if self.ready and name != "wait":
            self._run(name, "")
