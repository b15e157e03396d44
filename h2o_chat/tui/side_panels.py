"""The panels around the conversation: top line, memory panel or its one line, strip."""

from time import monotonic
from typing import Literal, get_args

from textual.geometry import Size
from textual.widget import Widget

from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.tui.panel.panel import OVER, MemoryPanel
from h2o_chat.tui.panel.strip import RememberStrip
from h2o_chat.tui.status import MemoryLine, StatusLine

NUMBERS_A_SECOND = 3
"""While an answer is made: nobody reads faster."""
FOLD_BELOW = 100
"""On fewer columns the panel becomes one line, and lies over the chat when it is asked for."""
STRIP_COLUMNS, STRIP_ROWS, FRAME_ROWS = 60, 16, 30
"""Least columns and rows for the strip; least rows for a frame around it."""


Room = Literal["shown", "wide", "hidden"]
ROOMS: tuple[Room, ...] = get_args(Room)


class SidePanels:
    """The panels: which of them have room, and when they are drawn again.

    Attributes:
        room: how much of the screen the panel gets where it stands beside the chat.
        over: it lies over the chat, where it cannot stand beside it.
    """

    def __init__(self, memory: CacheView) -> None:
        self.status = StatusLine(memory, id="status")
        self.panel = MemoryPanel(memory, id="panel")
        self.line = MemoryLine(memory, id="line")
        self.strip = RememberStrip(memory, id="strip")
        self.room: Room = "shown"
        self.over = False
        self._before: Widget | None = None
        """The widget that had the keyboard before the panel was over the chat."""
        self._memory = memory
        self._terminal = Size(0, 0)
        self._drawn = -1
        """Number of the state that panel and strip show."""
        self._numbers_drawn = float("-inf")

    @property
    def behind(self) -> bool:
        """The cache has reported something that is not drawn yet."""
        return self._drawn != self._memory.states

    @property
    def beside(self) -> bool:
        """The screen is wide enough for the panel to stand beside the chat."""
        return self._terminal.width >= FOLD_BELOW

    @property
    def wanted(self) -> bool:
        """Whether the panel or its line is visible."""
        return self.room != "hidden" or not self.beside

    def toggle_panel(self) -> None:
        """SidePanels the chat: shown, wide, hidden; on a narrow screen over the chat, or not."""
        if self.beside:
            self.room = ROOMS[(ROOMS.index(self.room) + 1) % len(ROOMS)]
        else:
            self.over = not self.over
        focused = self.panel.screen.focused
        self.fold(self._terminal)
        if self.over:
            self._before = focused
            self.panel.focus()
        elif focused is self.panel and not self.panel.display and self._before:
            self._before.focus()

    def fold(self, terminal: Size) -> None:
        self._terminal = terminal
        columns, rows = terminal
        self.over = self.over and not self.beside
        self.strip.display = columns >= STRIP_COLUMNS and rows >= STRIP_ROWS and not self.over
        self.strip.set_class(rows < FRAME_ROWS, "-low")
        self.panel.set_class(self.over, OVER)
        self.panel.set_class(self.room == "wide", "-wide")
        self.panel.display = self.over or (self.beside and self.room != "hidden")
        self.line.display = not self.beside and not self.over

    def refresh(self, *, busy: bool = False, moved: bool = False) -> None:
        """Draw the changes; panel and strip only when the cache has reported, or the cursor moved."""
        now = monotonic()
        if not busy and not moved:
            self._memory.answering = False
        if busy and not moved and now - self._numbers_drawn < 1 / NUMBERS_A_SECOND:
            return
        self._numbers_drawn = now
        self.status.refresh()
        if moved or self.behind:
            self._drawn = self._memory.states
            for widget in (self.panel, self.line, self.strip):
                widget.refresh()
