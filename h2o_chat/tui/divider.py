"""The line between conversation and prompt; it says in passing what goes on."""

from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget

from h2o_chat.tui.safe import safe_text
from h2o_chat.tui.theme import MUTED

SAID_SECONDS = 4.0


class Divider(Widget):
    """Joins the two boxes, and carries one short remark that goes away by itself."""

    DEFAULT_CSS = """
    Divider { height: 1; color: $border; }
    """

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._doing = ""
        self._pointed = ""
        self._said = ""
        self._timer: Timer | None = None

    @property
    def remark(self) -> str:
        """What stands on the line now."""
        return self._said or self._pointed or self._doing

    def doing(self, text: str) -> None:
        """What goes on, until the next call; empty for nothing."""
        self._doing = safe_text(text)
        self.refresh()

    def point(self, text: str) -> None:
        """What is known of the token under the cursor, in front of what goes on; empty for none."""
        before = self.remark
        if text:
            self._said = ""  # whoever moves the cursor wants to read this
        self._pointed = safe_text(text)
        if self.remark != before:
            self.refresh()

    def say(self, text: str, seconds: float = SAID_SECONDS) -> None:
        """An answer to a key, shown for a while in front of what goes on."""
        if self._timer:
            self._timer.stop()
        self._said = safe_text(text)
        self._timer = self.set_timer(seconds, self._fall_silent)
        self.refresh()

    def _fall_silent(self) -> None:
        self._said = ""
        self.refresh()

    def render(self) -> Content:
        width = self.size.width
        text = f" {self.remark} " if self.remark else ""
        left = Content.assemble("├─", (text, MUTED)).truncate(width - 1)
        return left.pad_right(max(width - 1 - left.cell_length, 0), "─") + "┤"
