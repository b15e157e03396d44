"""The memory panel: how full it is, below that one of three tabs; its last line explains the marks."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Blur, Click, MouseScrollDown, MouseScrollUp
from textual.reactive import reactive
from textual.widget import Widget

from h2o_chat.base.glyphs import MARKS, size
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.events.events import CacheState
from h2o_chat.tui.panel import details, loss_history, overview
from h2o_chat.tui.transcript.choice import Pointed
from h2o_chat.tui.widgets.box_frame import Line, chosen_at, edge, row
from h2o_chat.tui.widgets.theme import KIND_STYLES, MUTED

TABS = ("now", "history", "details")
OVER = "-over"
"""Class of a panel that lies over the chat, where there is no room beside it."""
LEAST_COLUMNS, LEAST_ROWS = 24, 6
ROWS_FOR_HEADS = 16
"""Rows from which there is room for a line that says what a head is."""


class MemoryPanel(Widget, can_focus=True):
    """Drawn from `CacheView` as one node, frame included, whenever the cache reports."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "point(-1)", "words", tooltip="choose the word above; in the details a token"),
        Binding("down", "point(1)", "the word below", show=False),
        Binding("left", "turn(-1)", "the tab before", show=False),
        Binding("right", "turn(1)", "tabs", tooltip="the next tab"),
        Binding("pageup", "scroll_page(-1)", "the details above", show=False),
        Binding("pagedown", "scroll_page(1)", "the details below", show=False),
        Binding("escape", "leave", "leave the word"),
        Binding("escape", "close", "close"),
    ]
    tab: reactive[int] = reactive(0)

    def __init__(self, memory: CacheView, id: str) -> None:
        super().__init__(id=id)
        self._memory = memory
        self._lines: dict[int, Line] = {}  # the lines that can be chosen, by row, as drawn last
        self._tabs_at = 0  # the row of the tabs' names, as drawn last
        self._top = 0  # the first line of the details that is shown
        self._hidden = 0  # the number of lines that are not shown

    def render(self) -> Content:
        width, height = self.size
        if width < LEAST_COLUMNS or height < LEAST_ROWS:
            return Content()
        inner, self._lines = width - 4, {}
        name = "▸ memory" if self.has_focus else "memory"
        drawn = [edge("╭", name, _tokens_kept(self._memory), "╮", width)]
        drawn += [row(line, inner) for line in _gauge(self._memory, inner)[: height - 4]]
        legend = [(overview.LEGEND, loss_history.LEGEND, details.LEGEND)[self.tab]]
        if TABS[self.tab] == "now" and height >= ROWS_FOR_HEADS:
            legend.insert(0, overview.HEADS)
        if self.has_class(OVER) and self._memory.facts:  # the panel covers where it is said otherwise
            legend = [line.plain for line in Content(self._memory.facts).wrap(inner)[:3]]
        rows = height - len(drawn) - 2 - len(legend)
        for line in self._shown(inner, rows):
            if line.spots:
                self._lines[len(drawn)] = line
            drawn.append(
                edge("├", line.content.plain, "", "┤", width) if line.title else row(line.content, inner)
            )
        drawn += [row(Content(), inner)] * (height - 2 - len(legend) - len(drawn))
        self._tabs_at = len(drawn)
        names = [
            Content.styled(name, "bold underline $foreground" if number == self.tab else MUTED)
            for number, name in enumerate(TABS)
        ]
        other = "← →" if self.has_focus else "tab, then ← →"
        drawn.append(edge("├", Content("  ").join(names), other if self.tab else "", "┤", width))
        drawn += [row(Content.styled(line, MUTED), inner) for line in legend]
        drawn.append(edge("╰", "", "", "╯", width))
        return Content("\n").join(drawn)

    def _shown(self, inner: int, rows: int) -> list[Line]:
        match TABS[self.tab]:
            case "now":
                return overview.draw(self._memory, inner, rows)
            case "history":
                return loss_history.draw(self._memory, inner, rows)
            case _:
                lines = details.draw(self._memory, inner)
                self._hidden = max(len(lines) - rows, 0)
                self._top = min(self._top, self._hidden)
                return lines[self._top : self._top + max(rows, 0)]

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "leave":
            return self._memory.cursor is not None and not self.has_class(OVER)
        if action == "close":
            return self.has_class(OVER)
        return TABS[self.tab] == "details" if action == "scroll_page" else True

    def action_leave(self) -> None:
        self.post_message(Pointed(None))

    async def action_close(self) -> None:
        if self._memory.cursor is not None:
            self.action_leave()
        await self.run_action("app.toggle_panel")

    async def on_blur(self, event: Blur) -> None:
        """Close it when the keyboard goes elsewhere; not when the whole terminal is left."""
        if self.has_class(OVER) and self.screen.focused is not None:
            await self.run_action("app.toggle_panel")

    def action_turn(self, step: int) -> None:
        self.tab, self._top = (self.tab + step) % len(TABS), 0

    def action_scroll_page(self, step: int) -> None:
        self._scroll(step * max(self.size.height - 8, 1))

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        self._scroll(3)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        self._scroll(-3)

    def _scroll(self, lines: int) -> None:
        self._top = max(0, min(self._top + lines, self._hidden))
        self.refresh()

    def action_point(self, step: int) -> None:
        """Choose the word above or below; in the details, a token."""
        listed = (overview.order, loss_history.order, details.order)[self.tab](self._memory)
        if not listed:
            return
        details_shown = TABS[self.tab] == "details"
        at = chosen_at(listed, self._memory.pointed if details_shown else self._memory.cursor)
        place = 0 if at is None else max(0, min(at + step, len(listed) - 1))
        self.post_message(Pointed(listed[place][0]))

    def on_click(self, event: Click) -> None:
        column = event.x - 2
        if event.y == self._tabs_at:
            end = 1
            for number, name in enumerate(TABS):
                if end <= column < end + len(name) + 1:
                    self.tab = number
                end += len(name) + 2
        elif line := self._lines.get(event.y):
            for first, behind, position in line.spots:
                if first <= column < behind:
                    self.post_message(Pointed(position))


def _tokens_kept(memory: CacheView) -> str:
    cache, session = memory.cache, memory.session
    if cache is None or session is None:
        return ""
    if memory.evicted:
        return f"{cache.kept:,} of {cache.seen:,} tokens kept"
    of = " tokens" if session.budget is None else f" of {session.budget:,} used"
    return f"{cache.kept:,}{of}"


def _gauge(memory: CacheView, inner: int) -> list[Content]:
    """A bar of the slots, the meaning of its marks, and bytes where they say something."""
    cache, session = memory.cache, memory.session
    if cache is None or session is None:
        return [Content.styled("nothing read yet", MUTED)]
    forgotten = f"{memory.evicted:,} forgotten" if memory.evicted else "nothing forgotten yet"
    if session.budget is None:
        forgotten = "keeps everything"
    bar = _bar(cache, session.budget or max(cache.kept, 1), max(inner - len(forgotten) - 3, 4))
    lines = [Content.assemble(*bar, "   ", (forgotten, "$foreground")), _marks(memory, cache, inner)]
    if memory.evicted and cache.bytes_full > cache.bytes:
        never = f"never over {size(cache.bytes)}"
        never += f" + {size(session.fixed_bytes)} fixed" if session.fixed_bytes else ""
        more = f"{never} · without limit {size(cache.bytes_full)}"
        lines.append(Content.styled(more if len(more) <= inner else never, MUTED))
    return lines


def _bar(cache: CacheState, budget: int, cells: int) -> list[tuple[str, str]]:
    """The slots of the fullest cache by kind; a kind that has any always shows."""
    parts, used, drawn = [], 0, 0
    for kind in "HRS":
        count = cache.kinds.get(kind, 0)
        used += count
        end = min(max(round(used / budget * cells), drawn + (count > 0)), cells)
        parts.append((MARKS[kind] * (end - drawn), KIND_STYLES[kind]))
        drawn = end
    return [*parts, (" " * (cells - drawn), "")]


def _marks(memory: CacheView, cache: CacheState, inner: int) -> Content:
    """The legend of the bar, with numbers."""
    parts = [
        Content.assemble(
            (MARKS[kind], KIND_STYLES[kind]), (f" {name} {cache.kinds.get(kind, 0):,}", "$foreground")
        )
        for kind in "RHS"
        for name in [memory.names[kind]]
    ]
    gap = " " * max(min((inner - sum(map(len, parts))) // 2, 3), 1)
    return Content(gap).join(parts)
