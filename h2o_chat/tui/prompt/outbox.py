"""Messages and commands on their way: edited, waiting for an answer, files or a model, coming back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from textual.content import Content
from textual.widget import Widget

from h2o_chat.base.safe import fit, safe_text
from h2o_chat.chat.commands import table
from h2o_chat.chat.files.attached import AttachedFiles, names_files
from h2o_chat.tui.prompt.prompt_box import PromptBox
from h2o_chat.tui.transcript.transcript import Transcript
from h2o_chat.tui.widgets.divider import Divider
from h2o_chat.tui.widgets.theme import MUTED

State = Literal["queued", "sent", "answering", "withdrawn"]
"""`queued`: it waits its turn, or for the files that it names. `sent`: its job runs. `answering`: the
conversation has changed by it: a message was read, or a command was carried out. `withdrawn`: it was stopped
before that."""


@dataclass(eq=False)
class Outgoing:
    """A message, a command that waits, or what a command or a key has begun."""

    typed: str = ""
    """The text in the box; empty where nothing was typed."""
    edits: int | None = None
    """Index of the message that it replaces; None: it is a new message."""
    state: State = "queued"
    pins: bool = False
    """It is protected as it is sent."""
    files: AttachedFiles | None = None
    """The files that it names, while they are read."""
    drawn_index: int | None = None
    """Index at which it was shown when enter was pressed, before anything was reported."""
    answered: bool = False
    """An answer has ended: what is read since are the results of its tools."""
    failed: bool = False
    """An error has ended it: what waits behind it comes back."""
    fork: int | None = None
    """Index of the message where another branch begins, where that is opened."""
    chosen: bool = False
    """The person has chosen that message, and it stays chosen."""


class Editing:
    """The message at `index` that is edited in the box (None: none), and the draft that stood there."""

    def __init__(self, prompt: PromptBox, transcript: Transcript, divider: Divider) -> None:
        self.index: int | None = None
        self._prompt, self._transcript, self._divider = prompt, transcript, divider
        self._draft = ""

    @property
    def has_text(self) -> bool:
        return bool(self._prompt.text)

    def begin(self, index: int, text: str) -> None:
        self._transcript.inspector.end()
        if self.index is None:
            self._draft = "\n".join(filter(None, (self._draft, self._prompt.text)))
        elif self.index != index:
            self._prompt.clear_to_history()
        if self.index != index or not self._prompt.text:  # else it goes on
            self._prompt.put(text)
        self.index = index
        self._prompt.screen.set_focus(self._prompt)  # at once: what is typed next is for it
        self._transcript.select(index)
        self._divider.doing("editing · enter sends this instead, esc gives up")
        self._transcript.refresh_bindings()

    def end(self) -> int | None:
        """Stop editing; returns the index of the message, None if none was edited."""
        index, self.index = self.index, None
        self._transcript.select(None)
        return index

    def give_up(self) -> None:
        """Stop editing and leave the message as it was; the draft comes back."""
        if self.end() is not None:
            self._prompt.clear_to_history()
            self.restore_draft()
            self._divider.doing("")
            self._transcript.refresh_bindings()

    def keep(self) -> None:
        """Keep the draft and what stands in the box in the history."""
        self._prompt.keep(self._draft)

    def clear_to_history(self) -> bool:
        """Empty the box, `up` brings its text back; False where it is empty."""
        there = bool(self._prompt.text)
        if self.index is not None:
            self.give_up()
        else:
            self._prompt.clear_to_history()
        return there

    def return_unsent(self, sent: Outgoing) -> str:
        """Put a text that was not taken into the box again; returns a remark."""
        if not sent.typed:
            return "nothing has changed"
        self.return_to_box(sent.typed, sent.edits)
        return "stopped · nothing was sent · your text is back"

    def return_to_box(self, text: str, edits: int | None) -> None:
        """Put a text that was not sent into the box again, before what stands there."""
        if edits is not None and self.index is None:
            self.begin(edits, text)
            return
        if table.is_command(self._prompt.text):  # else it would become part of the text
            self._prompt.clear_to_history()
        self._prompt.put_before(text)

    def restore_draft(self) -> None:
        """Put the draft into the box again, before what stands there by now."""
        if self._draft:
            self._prompt.put_before(self._draft)
        self._draft = ""


MOST_ROWS = 3
LOW = 16
"""On fewer rows only one message is shown."""
BACK = " · up takes it back"
BACK_FROM = 40
"""On fewer columns the hint how a text comes back is left out."""


class Outbox(Widget):
    """One line above the prompt for each text that waits, in the order in which they will be sent."""

    def __init__(self, editing: Editing, id: str) -> None:
        super().__init__(id=id)
        self._editing = editing
        self._waiting: list[Outgoing] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def files(self) -> AttachedFiles | None:
        """The files that the first message waits for."""
        return self._waiting[0].files if self._waiting else None

    def add_once(self, command: str) -> None:
        if all(one.typed != command for one in self._waiting):
            self.add(command, None)

    def add(self, typed: str, edits: int | None) -> None:
        self._waiting.append(Outgoing(typed, edits))
        self._changed()

    def due(
        self, read: Callable[[AttachedFiles], None]
    ) -> tuple[Outgoing, str | tuple[table.Command, str]] | None:
        """The next one, taken from the queue, and its text, or its command; None where nothing is ready.

        Args:
            read: reads the files that it names; it waits for them, and for nothing else.
        """
        if not self._waiting or self.files is not None:
            return None
        first = self._waiting[0]
        parsed = table.parse(first.typed)
        if not isinstance(parsed, str) or not names_files(parsed):
            return self.take(), parsed
        first.files = AttachedFiles(parsed)
        self._changed()
        read(first.files)
        return None

    def read_later(self) -> None:
        """The files of the first text were read too early: they will be read again."""
        self._waiting[0].files = None
        self._changed()

    def return_all(self) -> str:
        """Put all texts back into the box, before what was typed meanwhile; a command only if it is alone.

        Returns the commands that are left out.
        """
        texts = [one for one in self._waiting if not table.is_command(one.typed)]
        if not texts and not self._editing.has_text:
            texts = self._waiting[:1]
        for waiting in reversed(texts):
            self._editing.return_to_box(waiting.typed, waiting.edits)
        left_out = ", ".join(one.typed for one in self._waiting if one not in texts)
        self._waiting.clear()
        self._changed()
        return left_out

    def return_newest(self) -> bool:
        """Put the newest text back into the box; False where nothing waits."""
        if not self._waiting or self._waiting[-1].files is not None:
            return False
        newest = self.take(-1)
        self._editing.return_to_box(newest.typed, newest.edits)
        return True

    def take(self, at: int = 0) -> Outgoing:
        taken = self._waiting.pop(at)
        self._changed()
        return taken

    def _changed(self) -> None:
        self.display = bool(self._shown())
        self.refresh(layout=True)
        self.app.refresh_bindings()  # escape stops, and gives back, while something waits

    def on_click(self) -> None:
        """Like `up` in the empty prompt."""
        self.return_newest()

    # Drawing

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return len(self._shown())

    def _shown(self) -> list[Outgoing]:
        """The newest messages that have room.

        Messages whose files are read are left out: their lines would come and go in a blink.
        """
        rows = 1 if self.app.size.height < LOW else MOST_ROWS
        return [one for one in self._waiting if one.files is None][-rows:]

    def render(self) -> Content:
        width, lines, shown = self.size.width, [], self._shown()
        hidden = sum(one.files is None for one in self._waiting) - len(shown)
        for waiting in shown:
            number = self._waiting.index(waiting) + 1
            back = f" · and {hidden} more" if hidden and waiting is shown[0] else ""
            back += BACK if number == len(self._waiting) and width >= BACK_FROM else ""
            which = "waits: " if len(self._waiting) == 1 else f"waits {number}: "
            text = " ".join(safe_text(waiting.typed).split())
            room = max(width - len(which) - len(back) - 2, 1)
            text = text if Content(text).cell_length <= room else fit(text, room - 1).rstrip() + "…"
            lines.append(Content.assemble((which, "$accent"), f"“{text}”", (back, MUTED)))
        return Content("\n").join(lines)
