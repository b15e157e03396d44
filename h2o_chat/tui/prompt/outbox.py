"""Messages that wait their turn: behind an answer, for a model that is opened, for files that they name."""

from collections.abc import Callable

from textual.content import Content
from textual.widget import Widget

from h2o_chat.base.safe import fit, safe_text
from h2o_chat.chat.commands import table
from h2o_chat.chat.files.attached import AttachedFiles, names_files
from h2o_chat.tui.prompt.editing import Editing
from h2o_chat.tui.prompt.outgoing import Outgoing
from h2o_chat.tui.widgets.theme import MUTED

MOST_ROWS = 3
LOW = 16
"""On fewer rows only one message is shown."""
BACK = " · up takes it back"
BACK_FROM = 40
"""On fewer columns the hint how a text comes back is left out."""


class Outbox(Widget):
    """One line above the prompt for each message that waits, in the order in which they will be sent.

    Args:
        editing: puts a text that comes back into the box.
    """

    DEFAULT_CSS = """
    Outbox {
        height: auto; padding: 0 1; display: none; text-wrap: nowrap;
        border-left: solid $border; border-right: solid $border;
    }
    """

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

    def add(self, typed: str, edits: int | None) -> None:
        """Queue a text."""
        self._waiting.append(Outgoing(typed, edits))
        self._changed()

    def due(self, read: Callable[[AttachedFiles], None]) -> tuple[Outgoing, str] | None:
        """The message whose turn it is, taken from the queue, and its text; None where none is ready.

        Args:
            read: reads the files that it names; it waits for them, and for nothing else.
        """
        if not self._waiting or self.files is not None:
            return None
        first = self._waiting[0]
        said = table.parse(first.typed)
        assert isinstance(said, str), "commands do not wait"
        if not names_files(said):
            return self._take(0), said
        first.files = AttachedFiles(said)
        self._changed()
        read(first.files)
        return None

    def take_first(self) -> Outgoing:
        """Take the first message from the queue."""
        return self._take(0)

    def read_later(self) -> None:
        """The files of the first text were read too early: they will be read again."""
        self._waiting[0].files = None
        self._changed()

    def give_back(self) -> None:
        """Put all texts back into the box, before what was typed meanwhile."""
        for waiting in reversed(self._waiting):
            self._editing.give(waiting.typed, waiting.edits)
        self._waiting.clear()
        self._changed()

    def take_back(self) -> bool:
        """Put the newest text back into the box; False where nothing waits."""
        if not self._waiting or self._waiting[-1].files is not None:
            return False
        newest = self._take(-1)
        self._editing.give(newest.typed, newest.edits)
        return True

    def _take(self, at: int) -> Outgoing:
        taken = self._waiting.pop(at)
        self._changed()
        return taken

    def _changed(self) -> None:
        self.display = bool(self._shown())
        self.refresh(layout=True)
        self.app.refresh_bindings()  # escape stops, and gives back, while something waits

    def on_click(self) -> None:
        """Like `up` in the empty prompt."""
        self.take_back()

    # Drawing

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        return len(self._shown())

    def _shown(self) -> list[Outgoing]:
        """The newest messages that have room.

        Messages whose files are read are left out: a line that came and went in a blink would only move the
        rest.
        """
        rows = 1 if self.app.size.height < LOW else MOST_ROWS
        return [one for one in self._waiting if one.files is None][-rows:]

    def render(self) -> Content:
        width, lines = self.size.width, []
        for waiting in self._shown():
            number = self._waiting.index(waiting) + 1
            back = BACK if number == len(self._waiting) and width >= BACK_FROM else ""
            which = "waits: " if len(self._waiting) == 1 else f"waits {number}: "
            text = " ".join(safe_text(waiting.typed).split())
            room = max(width - len(which) - len(back) - 2, 1)
            text = text if Content(text).cell_length <= room else fit(text, room - 1).rstrip() + "…"
            lines.append(Content.assemble((which, "$accent"), f"“{text}”", (back, MUTED)))
        return Content("\n").join(lines)
