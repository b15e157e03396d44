"""What stands around the conversation: the top line, the memory panel or its one line, the strip."""

from time import monotonic

from textual.geometry import Size

from h2o_chat.tui.panel.held import CacheView
from h2o_chat.tui.panel.panel import MemoryLine, MemoryPanel
from h2o_chat.tui.panel.strip import RememberStrip
from h2o_chat.tui.status import StatusLine

NUMBERS_A_SECOND = 3
"""While an answer is made: nobody reads faster."""
FOLD_BELOW = 100
"""Columns under which the panel becomes one line."""
STRIP_COLUMNS, STRIP_ROWS, FRAME_ROWS = 60, 16, 30
"""What a screen must have for the strip; the rows it must have for a frame around that."""


class Beside:
    """The widgets, which of them have room, and when they are drawn again.

    Attributes:
        wanted: Whether the panel is shown, or its line where there is no room for more.
    """

    def __init__(self, memory: CacheView) -> None:
        self.status = StatusLine(memory, id="status")
        self.panel = MemoryPanel(memory, id="panel")
        self.line = MemoryLine(memory, id="line")
        self.strip = RememberStrip(memory, id="strip")
        self.wanted = True
        self._memory = memory
        self._terminal = Size(0, 0)
        self._drawn = -1
        """The state of the cache that panel and strip show."""
        self._numbers_drawn = float("-inf")

    @property
    def behind(self) -> bool:
        """The cache has reported something that is not drawn yet."""
        return self._drawn != self._memory.states

    def toggle_panel(self) -> None:
        """Show the panel wide, then hide it, then show it again; its one line has no wide form."""
        if self.panel.display and not self.panel.has_class("-wide"):
            self.panel.add_class("-wide")
            return
        self.panel.remove_class("-wide")
        self.wanted = not self.wanted
        self.fold(self._terminal)

    def fold(self, terminal: Size) -> None:
        """Show what has room."""
        self._terminal = terminal
        columns, rows = terminal
        self.strip.display = columns >= STRIP_COLUMNS and rows >= STRIP_ROWS
        self.strip.set_class(rows < FRAME_ROWS, "-low")
        wide = columns >= FOLD_BELOW
        self.panel.display = wide and self.wanted
        self.line.display = not wide and self.wanted

    def refresh(self, *, busy: bool = False, moved: bool = False) -> None:
        """Draw what has changed; panel and strip only when the cache has reported, or the cursor moved."""
        now = monotonic()
        if busy and not moved and now - self._numbers_drawn < 1 / NUMBERS_A_SECOND:
            return
        self._numbers_drawn = now
        self.status.refresh()
        if moved or self.behind:
            self._drawn = self._memory.states
            for widget in (self.panel, self.line, self.strip):
                widget.refresh()
