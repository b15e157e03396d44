"""The panels around the conversation: top line, memory panel or its one line, strip."""

from time import monotonic

from rich.cells import cell_len
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from h2o_chat.base.glyphs import short
from h2o_chat.base.safe import safe_text
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.chat.memory.in_words import forgotten, remembered
from h2o_chat.events.events import Session
from h2o_chat.tui.panel.panel import OVER, MemoryPanel
from h2o_chat.tui.panel.strip import RememberStrip
from h2o_chat.tui.widgets.theme import MUTED

WIDE = 80
"""Columns from which numbers are written out."""
LEAST_NAME = 10
"""Columns for the name of the model; where they are not left, how it is computed is not said."""


class StatusLine(Widget):
    def __init__(self, memory: CacheView, id: str) -> None:
        super().__init__(id=id)
        self._memory = memory

    def render(self) -> Content:
        width = self.size.width
        wide = width >= WIDE
        numbers = self._numbers(wide)
        session = self._memory.session
        native = " native" if session and session.engine == "native" else ""
        how = f" · {_weights(session)} · {safe_text(session.device)}{native}" if session else ""
        if width < len(numbers) + len(how) + LEAST_NAME:
            how = ""  # a number that is cut would be a wrong one
        room = width - len(numbers) - len(how) - 1
        name = safe_text(session.model) if session else "h2o-chat"
        name = f"h2o-chat   {name}" if session and wide else name
        model = Content(name).truncate(max(room, 1), ellipsis=True).plain
        left = Content.assemble((model, "bold $foreground"), (how, MUTED))
        gap = max(width - left.cell_length - len(numbers), 1)
        return Content.assemble(left, " " * gap, (numbers, MUTED)).truncate(width)

    def _numbers(self, wide: bool) -> str:
        memory = self._memory
        if memory.cache is None:
            return "nothing read yet" if memory.session else ""
        kept, seen = memory.seen - memory.evicted, memory.seen
        count, of = (f"{kept:,}", f"{seen:,} tokens") if wide else (short(kept), short(seen))
        if not seen:
            remembers = "remembers nothing yet"
        elif not memory.evicted:
            remembers = f"remembers all {of}"
        else:
            remembers = f"remembers {count} of {of}"
        if memory.tok_s is None or not memory.answering:
            return remembers
        pace = f"{memory.tok_s:.1f}" if wide or memory.tok_s < 10 else f"{memory.tok_s:.0f}"
        return f"{remembers} · {pace} tok/s"


def _weights(session: Session) -> str:
    """The quantisation of the weights, or their type."""
    if session.quantization != "none":
        return safe_text(session.quantization)
    return safe_text(session.dtype).replace("float", "fp").replace("bfp", "bf")


WORDS = 3
"""Most words that are named: in the first half of the conversation, those that most heads hold."""


class MemoryLine(Widget):
    """How much is remembered, some old words, what was just forgotten; parts without room are left out."""

    def __init__(self, memory: CacheView, id: str) -> None:
        super().__init__(id=id)
        self._memory = memory

    async def on_click(self) -> None:
        await self.run_action("app.toggle_panel")

    def render(self) -> Content:
        memory, room = self._memory, self.size.width
        if memory.cache is None or memory.session is None:
            return Content("nothing remembered yet")
        if not memory.evicted:
            of = "" if memory.session.budget is None else f" of {memory.session.budget:,}"
            return Content(f"{memory.cache.kept:,}{of} · nothing forgotten yet").truncate(room)
        line = f"remembers {memory.cache.kept:,} of {memory.seen:,}"
        known = remembered(memory)
        old = [held for held in known if held.word.first < memory.seen // 2] or known
        best = {held.word.text: None for held in sorted(old, key=lambda held: -held.hold)}
        words = [
            safe_text(text)
            for text in dict.fromkeys(held.word.text for held in old)
            if text in [*best][:WORDS]
        ]
        held = {one.word.text.lower() for one in known}
        went = [
            f"“{safe_text(phrase.text)}” {numbered(phrase.index)}"
            for phrase in forgotten(memory)
            if not held.issuperset(phrase.text.lower().split())  # the same words are known from elsewhere
        ]
        longer = (f"{line} · still knows {', '.join(words[:n])}" for n in range(len(words), 0, -1))
        line = next((one for one in longer if cell_len(one) <= room), line)
        last = next((text for text in went if cell_len(f"{line} · forgot {text}") <= room), None)
        return Content(f"{line} · forgot {last}" if last else line)


NUMBERS_A_SECOND = 3
"""While an answer is made: nobody reads faster."""
FOLD_BELOW = 100
"""On fewer columns the panel becomes one line, and lies over the chat when it is asked for."""
STRIP_COLUMNS, STRIP_ROWS, FRAME_ROWS = 60, 16, 30
"""Least columns and rows for the strip; least rows for a frame around it."""
ROOMS = ("shown", "wide", "hidden")
"""How much of the screen the panel gets where it stands beside the chat."""


class SidePanels:
    """The panels: which of them have room, and when they are drawn again.

    Attributes:
        room: one of `ROOMS`.
        over: it lies over the chat, where it cannot stand beside it.
        quiet: none of them is shown.
    """

    def __init__(self, memory: CacheView) -> None:
        self.status = StatusLine(memory, id="status")
        self.panel = MemoryPanel(memory, id="panel")
        self.line = MemoryLine(memory, id="line")
        self.strip = RememberStrip(memory, id="strip")
        self.room = ROOMS[0]
        self.over = self.quiet = False
        self._before: Widget | None = None
        """The widget that had the keyboard before the panel was over the chat."""
        self._memory = memory
        self._terminal = Size(0, 0)
        self._drawn = -1  # number of the state that panel and strip show
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
        return not self.quiet and (self.room != "hidden" or not self.beside)

    def toggle_panel(self) -> None:
        """Beside the chat: shown, wide, hidden; on a narrow screen over the chat, or not."""
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
        self.over = self.over and not self.beside and not self.quiet
        room = columns >= STRIP_COLUMNS and rows >= STRIP_ROWS
        self.strip.display = room and not self.over and not self.quiet
        self.strip.set_class(rows < FRAME_ROWS, "-low")
        self.panel.set_class(self.over, OVER)
        self.panel.set_class(self.room == "wide", "-wide")
        self.panel.display = self.over or (self.beside and self.wanted)
        self.line.display = not self.beside and not self.over and not self.quiet

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
