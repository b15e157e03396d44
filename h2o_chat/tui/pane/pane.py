"""The conversation's half of the screen: the transcript, the divider, and an entry below it."""

from collections.abc import Callable
from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from h2o_chat.base.errors import H2OChatError
from h2o_chat.base.glyphs import bar
from h2o_chat.base.safe import fit, safe_text
from h2o_chat.chat.commands.surface import ChatLike, Job
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.message import Recalled, all_numbered, speaker
from h2o_chat.chat.conversation.remarks import greeting
from h2o_chat.chat.conversation.spans import was_read
from h2o_chat.chat.files.attached import AttachedFiles
from h2o_chat.chat.recall.recall import quoted
from h2o_chat.events.events import ASKS, Note, Said, Turn
from h2o_chat.tui.pane.jobs import SHOWN_MESSAGES, Jobs, Report, Stage
from h2o_chat.tui.transcript import markdown
from h2o_chat.tui.transcript.choice import facts
from h2o_chat.tui.transcript.find import FindBar
from h2o_chat.tui.transcript.message_view import MessageView
from h2o_chat.tui.transcript.transcript import Transcript
from h2o_chat.tui.widgets.divider import Divider
from h2o_chat.tui.widgets.theme import MUTED

BAR_CELLS = 24
NAME_CELLS = 12


class Loading(MessageView):
    """A list of stages that grows; a stage is over when the next one begins."""

    def __init__(self, model: str) -> None:
        super().__init__("loading", "", Content())
        self._model = safe_text(model)
        self._stages: dict[str, tuple[str, float | None]] = {}  # (details, share done) by name
        self._failed = False
        self._draw()

    def stage(self, stage: Stage) -> None:
        """Take in the progress of a stage; its name ends at a colon."""
        name, _, details = stage.name.partition(":")
        self._stages[name] = details, stage.share
        self._draw()

    @property
    def stops(self) -> bool:
        """Whether the present stage can be stopped."""
        return next(reversed(self._stages), None) == "download" and not self._failed

    def fail(self) -> None:
        self._failed = True
        self._draw()

    def _draw(self) -> None:
        lines = [Content.assemble("opening ", (self._model, "bold"))]
        newest = next(reversed(self._stages), None)
        for name, (details, share) in self._stages.items():
            shown = fit(safe_text(name), NAME_CELLS)
            if name != newest or self._failed:
                lines.append(Content.styled(f"{'✗' if name == newest else '✓'} {shown}", MUTED))
            elif share is None:
                lines.append(Content(f"· {shown}…"))
            else:
                percent = f" {share:4.0%}{safe_text(details)}"
                lines.append(Content.assemble(f"· {shown}", (bar(share, BAR_CELLS), "$primary"), percent))
        self.drawn = Content("\n").join(lines)
        self.changed()


LONG_SECONDS, SURE_SECONDS = 10.0, 4.0
"""A reading that has taken so long is stopped by two presses of escape, within so long."""
HEAT = "heat: hold · brighter: by more heads · bold: important · struck: forgotten"


class Pane(Vertical):
    """Shows the reports of a conversation; `TalkPane` and `ReplayPane` add what a person can do.

    Attributes:
        chat: the conversation, None until one is open.
        memory: what the model remembers, by the reports.
        is_reading: a prompt is being read: states of the cache are shown as they come.
        about_prompt: the notes that came with the newest message: about its length, what was recalled.
        failed: no conversation is open: the first could not be opened.
        stages: the stages of opening, while one goes on.
    """

    STOP_HINT: ClassVar[str] = ""
    """How a job is stopped, appended to its description."""
    UNENDED: ClassVar[str] = "error"
    """Finish of an answer that ended without a `turn` event."""
    CAN_STOP: ClassVar[bool] = True
    """Whether a job can be stopped."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+t", "heat", "heat", priority=True, tooltip="heat: how many heads hold each word"),
        Binding("ctrl+f", "find", "find", priority=True, tooltip="find words in this conversation"),
        Binding("c", "copy", "copy", tooltip="chosen: copy the message"),
        Binding("k", "copy_code", "code", show=False, tooltip="chosen: copy its code, block by block"),
    ]

    busy: reactive[bool] = reactive(False, bindings=True)

    def __init__(self, jobs: Jobs) -> None:
        super().__init__(id="chat")
        self.chat: ChatLike | None = None
        self.jobs = jobs
        self.failed = False
        self.is_reading = False
        self.about_prompt: list[MessageView] = []
        self.stages: Loading | None = None
        self.transcript = Transcript(id="transcript")
        self.memory = self.transcript.heat.memory
        self.divider = Divider(id="divider")
        self.above_the_line: list[Widget] = []
        """Between the transcript and the divider."""
        self.entry: list[Widget] = []
        self.find_bar = FindBar(self.transcript.finder, self.transcript.find)
        self._copied = 0  # number of code blocks of the chosen message that were copied
        self._began_s, self._sure_until_s = 0.0, 0.0
        """When the newest job began; until when escape has been pressed once."""

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield from self.above_the_line
        yield self.divider
        yield self.find_bar
        with Horizontal(id="entry"):
            yield from self.entry

    def begin(self, job: Job, doing: str) -> None:
        """Run a job; its reports come back to the methods below."""
        self.start(lambda: self.jobs.work(job), doing)

    def start(self, work: Callable[[], None], doing: str) -> None:
        """Run work in the thread; its last report is `Done`."""
        if self.memory.cursor is not None:
            self.transcript.inspector.end()  # the line about a token would hide what goes on
        self.divider.doing(doing)
        self.busy, self._began_s = True, monotonic()
        self.jobs.start(work)

    # Keys

    @property
    def stoppable(self) -> bool:
        """Whether `stop` would end something."""
        fetching = self.stages is not None and self.stages.stops
        return (self.busy or fetching) and self.CAN_STOP

    def stop(self) -> None:
        self.jobs.cancel()
        self.divider.doing("stopping")

    def stop_by_escape(self) -> None:
        """Stop at once; a reading that has taken long only when asked twice, since nothing of it is kept."""
        now = monotonic()
        if not self.is_reading or now < self._began_s + LONG_SECONDS or now < self._sure_until_s:
            self.divider.say("")
            self.stop()
        else:
            self._sure_until_s = now + SURE_SECONDS
            self.divider.say("esc again stops: nothing that was read is kept", SURE_SECONDS)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("copy", "copy_code"):
            return self.transcript.letters
        return super().check_action(action, parameters)

    def on_transcript_chosen(self) -> None:
        self.divider.offer(self.transcript.offers())
        self.app.refresh_bindings()

    def action_heat(self) -> None:
        self.transcript.toggle_heat()
        self.divider.say(HEAT if self.transcript.heat.on else "heat off")

    def action_find(self) -> None:
        self.find_bar.open()

    def action_copy(self) -> None:
        self.copy(self.transcript.chosen_text(), "the message")

    def action_copy_code(self) -> None:
        """Copy the code of that message; pressed again, its next block."""
        blocks = markdown.code_blocks(self.transcript.chosen_text())
        if not blocks:
            self.divider.say("there is no code in this message")
            return
        at = self._copied % len(blocks)
        self._copied += 1
        self.copy(blocks[at], f"code block {at + 1} of {len(blocks)}")

    def copy(self, text: str, what: str) -> None:
        """Copy to the terminal's clipboard; whether that worked is unknown."""
        if text:
            self.app.copy_to_clipboard(text)
            self.divider.say(f"copied {what} · {len(text):,} characters")

    def show_error(self, error: H2OChatError) -> None:
        """Show why something that a person asked for just now is refused."""
        self.transcript.messages.error(error.code, error.message, error.hint)
        self.transcript.window.follow()

    # Reports of a job

    def opening(self, name: str) -> None:
        self.stages = Loading(name)
        self.transcript.messages.add(self.stages)
        self.transcript.window.follow()

    def on_not_opened(self) -> None:
        if self.stages is not None:
            self.stages.fail()
            self.transcript.messages.redraw(self.stages)
            self.stages = None
        if self.chat is None:
            self.broke()
        self.app.refresh_bindings()

    def on_opened(self, chat: ChatLike) -> None:
        self.chat, self.stages, self.failed = chat, None, False
        messages = self.transcript.messages
        messages.clear()
        with messages.filling():
            messages.note(greeting(chat.session))
            earlier = max(len(chat.messages) - SHOWN_MESSAGES, 0)
            if earlier:
                messages.note(f"{earlier} earlier messages are not shown here (h2o-chat sessions show)")
            asked: tuple[Recalled, ...] = ()
            for index, said in enumerate(chat.messages[earlier:], earlier):
                hold = said.hold if was_read(said) else None
                messages.message(said.role, self.speaker(said.role), said.text, index, said.finish, hold)
                if said.recalled:
                    places = all_numbered(one.index for one in said.recalled)
                    messages.by_index[index].remark = f"recalled {places}"
                    messages.note(f"{quoted(said.recalled)} recalled.")
                if asked and isinstance(chat, Chat):
                    for note in chat.recall.closest(said.text, asked):
                        messages.note(note.message)
                asked = said.recalled
            messages.show_marks(chat.messages)
            for note in chat.take_notes():
                self.on_note(note)
        messages.unfold_last()
        self.app.refresh_bindings()

    def broke(self) -> None:
        self.failed = True
        self.divider.doing("nothing is open · ctrl+q quits")

    def on_said(self, said: Said) -> None:
        """Show a message; behind one of the user an answer begins."""
        messages = self.transcript.messages
        if said.role == "assistant" and messages.answer and messages.answer.index == said.index:
            messages.close_answer(said.finish or "eos", said.text)
            if said.hold is not None and (view := messages.by_index.get(said.index)):
                view.hold = said.hold
                self.transcript.window.redraw()
            return
        messages.close_answer("interrupted")
        messages.cut(said.index)
        name = self.speaker(said.role)
        messages.message(said.role, name, said.text, said.index, said.finish, said.hold)
        messages.show_pin(said.index, said.pinned)
        if said.role in ASKS:
            self.about_prompt.clear()
            messages.open_answer(self.speaker("assistant"), said.index + 1)
            self.transcript.window.follow()
            self.divider.doing(f"reading{self.STOP_HINT}")

    def on_note(self, note: Note) -> None:
        self.transcript.messages.note(note.message, note.hint)
        if note.about is not None and note.code in ("pinned", "unpinned"):
            self.transcript.messages.show_pin(note.about, note.code == "pinned")

    def on_files_read(self, files: AttachedFiles) -> None: ...

    def pointed(self) -> None:
        """The cursor, or what is held of its token, is another."""
        cursor, line = self.memory.cursor, ""
        if cursor is not None and (view := self.transcript.inspector.view_of(cursor)):
            line = facts(self.memory, view, cursor)
        self.memory.facts = line
        self.divider.point(line)
        self.transcript.refresh_changed()

    def on_turn(self, turn: Turn) -> None:
        self.transcript.messages.close_answer(turn.finish, turn.text)
        self.transcript.messages.show_hold(turn)

    def on_withdrawn(self) -> None:
        """Take back a prompt that was stopped before the model had read it."""
        self.transcript.messages.withdraw()
        self.divider.say("stopped while reading · nothing was sent")

    def on_report(self, report: Report) -> None: ...

    def on_done(self) -> None:
        self.busy = False
        self.divider.doing("")
        self.transcript.messages.close_answer(self.UNENDED)  # unless a turn event has closed it
        self.on_transcript_chosen()  # what was chosen may be gone

    def speaker(self, role: str) -> str:
        return speaker(role, self.chat.session.model if self.chat else "model")
