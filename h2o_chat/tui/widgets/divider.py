"""The line between conversation and prompt; it carries a passing remark."""

from rich.cells import cell_len
from textual.content import Content
from textual.events import Click, Resize
from textual.timer import Timer
from textual.widget import Widget

from h2o_chat.base.safe import safe_text
from h2o_chat.tui.widgets.theme import MUTED

SAID_SECONDS = 4.0
MOST_ROWS = 4


class Divider(Widget):
    """Joins the two boxes, and carries a short remark that goes away by itself; on two rows if it must."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.goes_on = ""
        self._pointed = ""
        self._offered: list[str] = []
        """The chosen message, and the keys that act on it, each with its action."""
        self._said = ""
        self._timer: Timer | None = None
        self._rows = 1

    @property
    def remark(self) -> str:
        return self._said or self._pointed or " · ".join(self._offered) or self.goes_on

    def doing(self, text: str) -> None:
        """Set what goes on, until the next call; empty for nothing."""
        self.goes_on = safe_text(text)
        self._show()

    def point(self, text: str) -> None:
        """Set the line about the token under the cursor, in front of what goes on; empty for none."""
        before = self.remark
        if text:
            self._said = ""  # whoever moves the cursor wants to read this
        self._pointed = safe_text(text)
        if self.remark != before:
            self._show()

    def offer(self, chosen: list[str]) -> None:
        """Set what is chosen and what can be done with it, in front of what goes on; empty for nothing."""
        offered = [safe_text(part) for part in chosen]
        if offered != self._offered:
            self._offered = offered
            self._show()

    def on_click(self, event: Click) -> None:
        left = 3  # the frame and a space
        for number, part in enumerate(self._offers(self.size.width)):
            if number and left <= event.x < left + cell_len(part):
                key = part.split()[0]
                self.app.simulate_key({"esc": "escape"}.get(key, key))
            left += cell_len(part) + 3

    def _offers(self, width: int) -> list[str]:
        """The offers that have room on one row, the way back always; none behind another remark."""
        if self._said or self._pointed or not self._offered:
            return []
        parts = list(self._offered)
        if cell_len(" · ".join(parts)) > width - 5:
            parts = [parts[0].split()[0], *parts[1:-1], parts[-1].split()[0]]
        while len(parts) > 2 and cell_len(" · ".join(parts)) > width - 5:
            del parts[-2]
        return parts

    def say(self, text: str, seconds: float = SAID_SECONDS) -> None:
        """Show an answer to a key for a while, in front of what goes on."""
        if self._timer:
            self._timer.stop()
        self._said = safe_text(text)
        self._timer = self.set_timer(seconds, self._fall_silent)
        self._show()

    def _fall_silent(self) -> None:
        self._said = ""
        self._show()

    def on_resize(self, event: Resize) -> None:
        self._show()

    def _show(self) -> None:
        """Draw the remark, on as many rows as it takes; while a cursor moves it does not shrink."""
        rows = min(len(self._lines(self.size.width)), MOST_ROWS)
        self._rows = max(rows, self._rows) if self._pointed else rows
        self.styles.height = self._rows
        self.refresh()

    def _lines(self, width: int) -> list[str]:
        """The remark, wrapped between its parts where possible, else between words."""
        if offers := self._offers(width):
            return [" · ".join(offers)]  # one row: what was clicked stays where it is
        room = max(width - 5, 1)
        lines = [""]
        for part in self.remark.split(" · "):
            longer = f"{lines[-1]} · {part}" if lines[-1] else part
            if cell_len(longer) <= room:
                lines[-1] = longer
            else:
                lines += [line.plain for line in Content(part).wrap(room)]
        return lines[not lines[0] and len(lines) > 1 :]

    def render(self) -> Content:
        width = self.size.width
        lines = []
        for number, text in enumerate(self._lines(width)):
            left = Content.assemble("│ " if number else "├─", (f" {text} " if text else "", MUTED))
            left = left.truncate(width - 1)
            end = " │" if number else "─┤"
            lines.append(left.pad_right(max(width - 1 - left.cell_length, 0), end[0]) + end[1])
        lines += [Content("│".ljust(width - 1) + "│")] * (self._rows - len(lines))
        return Content("\n").join(lines[: self._rows])
