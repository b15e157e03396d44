"""The memory panel: how full, in tokens and bytes, what it costs, what is kept for being important."""

from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click
from textual.reactive import reactive
from textual.widget import Widget

from h2o_chat.base.safe import fit, token_label
from h2o_chat.events.events import CacheState, Heavy
from h2o_chat.tui.cursor import Pointed
from h2o_chat.tui.frame import edge, row
from h2o_chat.tui.glyphs import bar, percent, size, spark
from h2o_chat.tui.panel import headmap, lives, log, ranks
from h2o_chat.tui.panel.held import CacheView
from h2o_chat.tui.theme import MUTED

LABEL_CELLS = 7


TABS = ("heads", "rank", "lives", "log")
"""What the lower part shows, chosen with left and right, or a click."""
LEAST_TAB_ROWS = 5
HITTERS = (3, 16)
"""Heavy hitters shown where there is a tab below them, at least and at most."""


class MemoryPanel(Widget, can_focus=True):
    """Drawn as a whole, frame included, from `CacheView`; one node, redrawn when the cache reports.

    Attributes:
        tab: The index of the tab that is shown.
    """

    DEFAULT_CSS = """
    MemoryPanel { width: 46; height: 1fr; color: $border; }
    MemoryPanel.-wide { width: 58%; }
    MemoryPanel:focus { color: $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "point(-1)", "heavy tokens", tooltip="the heavy token above; in the log that token"),
        Binding("down", "point(1)", "the token below", show=False),
        Binding("left", "turn(-1)", "the tab before", show=False),
        Binding("right", "turn(1)", "the next tab", show=False),
        Binding("escape", "leave", "leave the token"),
    ]
    tab: reactive[int] = reactive(0)

    def __init__(self, memory: CacheView, id: str) -> None:
        super().__init__(id=id)
        self._memory = memory
        self._hitters_at = 0
        """The row of the first heavy hitter, and the row of the tabs' names, as drawn last."""
        self._tabs_at = 0

    def render(self) -> Content:
        width, height = self.size
        if width < 24 or height < 4:
            return Content()
        inner = width - 4
        policy = token_label(self._memory.session.policy) if self._memory.session else ""
        lines = [edge("╭", "▸ memory" if self.has_focus else "memory", policy, "╮", width)]
        lines += [row(line, inner) for line in self._summary(inner)]
        held = f"held by n/{self._memory.caches} caches" if self._memory.caches else ""
        lines.append(edge("├", "heavy hitters", held, "┤", width))
        rows = height - len(lines) - 1
        tab_rows = self._tab_rows(rows)
        self._hitters_at = len(lines)
        hitters = rows - tab_rows - 1 if tab_rows else rows
        lines += [row(line, inner) for line in self._heavy(inner, hitters)]
        lines += [row(Content(), inner)] * (self._hitters_at + hitters - len(lines))
        self._tabs_at = len(lines)
        if tab_rows:
            lines.append(edge("├", self._tab_names(), self._pointed(max(width - 36, 4)), "┤", width))
            lines += [row(line, inner) for line in self._tab(inner, tab_rows)[:tab_rows]]
        lines += [row(Content(), inner)] * (height - len(lines) - 1)
        lines.append(edge("╰", "", "", "╯", width))
        return Content("\n").join(lines[: height - 1] + lines[-1:])

    # The tabs

    def _tab_rows(self, rows: int) -> int:
        """Of the rows below the summary those of a tab; 0 where there is no room for one."""
        least, most = HITTERS
        if rows < least + 1 + LEAST_TAB_ROWS:
            return 0
        return rows - 1 - max(least, min(most, rows // 4))

    def _tab_names(self) -> Content:
        names = [
            (f"{number} {name}", "bold underline $foreground" if number - 1 == self.tab else MUTED)
            for number, name in enumerate(TABS, 1)
        ]
        return Content(" ").join([Content.styled(*name) for name in names])

    def _pointed(self, cells: int) -> str:
        """The token under the cursor: its text, where that is known, and its position."""
        position = self._memory.pointed
        if position is None:
            return ""
        text = self._memory.text(position)
        where = f"@{position}"
        if text is None:
            return where
        label, room = token_label(text), cells - len(where)
        return (label if cell_len(label) <= room else f"{fit(label, max(room - 1, 0))}…") + where

    def _tab(self, inner: int, rows: int) -> list[Content]:
        match TABS[self.tab]:
            case "heads":
                return headmap.draw(self._memory, inner, rows)
            case "rank":
                return ranks.draw(self._memory, inner, rows)
            case "lives":
                return lives.draw(self._memory.lives, inner, rows)
            case _:
                return log.draw(self._memory, inner, rows, self._log_first(rows - 2))

    def _log_first(self, rows: int) -> int:
        """How far the log is scrolled: so that the token under the cursor is in it."""
        went = [one.token.position for one in reversed(self._memory.went)]
        if self._memory.cursor not in went:
            return 0
        return max(went.index(self._memory.cursor) - rows + 1, 0)

    # What the person does

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that would do nothing now are neither bound nor shown."""
        return self._memory.cursor is not None if action == "leave" else True

    def action_leave(self) -> None:
        """No token is under the cursor any more."""
        self.post_message(Pointed(None))

    def action_turn(self, step: int) -> None:
        """Show the tab beside this one."""
        self.tab = (self.tab + step) % len(TABS)

    def action_point(self, step: int) -> None:
        """Move the cursor among the tokens that the log lists, where that is shown, else the heaviest."""
        if TABS[self.tab] == "log":
            listed = [one.token.position for one in reversed(self._memory.went)]
        else:
            listed = [one.position for one in self._memory.cache.heaviest] if self._memory.cache else []
        if not listed:
            return
        pointed = self._memory.pointed
        at = listed.index(pointed) + step if pointed in listed else 0
        self.post_message(Pointed(listed[max(0, min(at, len(listed) - 1))]))

    def on_click(self, event: Click) -> None:
        """A click chooses a heavy hitter, or a tab by its name."""
        if event.y == self._tabs_at:
            names = self._tab_names().plain
            at = event.x - 3
            if 0 <= at < len(names):
                self.tab = names[:at].count(" ") // 2
            return
        heaviest = self._memory.cache.heaviest if self._memory.cache else []
        at = event.y - self._hitters_at
        if self._hitters_at + at < self._tabs_at and 0 <= at < len(heaviest):
            self.post_message(Pointed(heaviest[at].position))

    # What stands above them

    def _summary(self, inner: int) -> list[Content]:
        cache = self._memory.cache
        if cache is None:
            return [Content.styled("nothing seen yet", MUTED)]
        room = inner - LABEL_CELLS
        return [
            self._occupancy(cache, room),
            _labelled("", self._kinds(cache)),
            _labelled("bytes", _bytes(cache, room)),
            _labelled("lost", self._lost(cache, room)),
        ]

    def _lost(self, cache: CacheState, room: int) -> Content:
        """Lately, and its history; a memory that was saved does not know what it had lost lately."""
        if not self._memory.knows_lost:
            return Content("not told before the next answer")
        history = spark(list(self._memory.lost)[-max(room - 13, 1) :])
        return Content.assemble(fit(f"{percent(cache.lost)}/tok", 13), (history, "$accent"))

    def _occupancy(self, cache: CacheState, room: int) -> Content:
        budget = self._memory.session.budget if self._memory.session else None
        if budget is None:
            return _labelled("cache", Content(f"{cache.kept:,} kept, no limit"))
        count = f"{cache.kept}/{budget} "
        full = " full" if cache.kept >= budget else f" {cache.kept / budget:.0%}"
        cells = max(room - len(count) - 5, 4)
        return _labelled(
            "cache", Content.assemble(count, (bar(cache.kept / budget, cells), "$primary"), full)
        )

    def _kinds(self, cache: CacheState) -> Content:
        """Slots by kind; what is protected beyond the sinks is a system prompt or was pinned."""
        sinks = self._memory.session.sinks if self._memory.session else 0
        protected = cache.kinds.get("S", 0)
        names = {"S": "sink" if protected <= sinks else "pinned", "H": "heavy", "R": "recent"}
        return Content(" · ".join(f"{cache.kinds.get(kind, 0):,} {name}" for kind, name in names.items()))

    def _heavy(self, inner: int, rows: int) -> list[Content]:
        """The ranking, as many as there is room for: rank, token, position, holders, bar."""
        heaviest = self._memory.cache.heaviest if self._memory.cache else []
        if not heaviest:
            return [Content.styled("none yet", MUTED)]
        return [self._heavy_row(rank, token, inner) for rank, token in enumerate(heaviest[:rows], 1)]

    def _heavy_row(self, rank: int, token: Heavy, inner: int) -> Content:
        digits = len(str(self._memory.caches))
        where = f"@{token.position}"
        holders = f"{self._memory.holders(token.hold):>{digits}}"
        pin = " pin" if token.kind == "S" else "    "
        fixed = f"{rank:>2}{'▸' if token.position == self._memory.pointed else ' '}"
        name_cells = min(12, max(inner - 30, 6))
        left = f"{fixed}{fit(token_label(token.text), name_cells)} {where:<7} {holders} "
        cells = max(inner - len(fixed) - name_cells - 10 - digits - len(pin), 4)
        return Content.assemble(
            (left[:3], MUTED),
            (left[3 : -digits - 2], "$foreground"),
            (left[-digits - 2 :], "$foreground"),
            (bar(token.hold, cells), "$secondary" if token.kind == "S" else "$accent"),
            (pin, MUTED),
        )


class MemoryLine(Widget):
    """The same on one line, for screens without room for the panel."""

    DEFAULT_CSS = """
    MemoryLine { height: 1; padding: 0 1; color: $muted; }
    """

    def __init__(self, memory: CacheView, id: str) -> None:
        super().__init__(id=id)
        self._memory = memory

    def render(self) -> Content:
        cache, session = self._memory.cache, self._memory.session
        if cache is None or session is None:
            return Content("nothing remembered yet")
        of = "" if session.budget is None else f"/{session.budget}"
        line = f"{cache.kept}{of}"
        if self._memory.knows_lost:
            line += f" · {percent(cache.lost)} lost"
        if words := _words(cache):
            line += f" · heavy: {' '.join(words)}"
        return Content(line).truncate(self.size.width, ellipsis=True)


def _words(cache: CacheState) -> list[str]:
    """The heavy tokens that mean something alone, each once: on one line there is no room for commas."""
    labels = (token_label(token.text) for token in cache.heaviest if token.kind == "H")
    return list(dict.fromkeys(label for label in labels if any(map(str.isalnum, label))))


def _labelled(label: str, value: Content) -> Content:
    return Content.assemble((label.ljust(LABEL_CELLS), MUTED), value.stylize_before("$foreground"))


def _bytes(cache: CacheState, room: int) -> Content:
    """All slots are allocated at once: the cache is the smaller one as soon as the conversation is longer."""
    if cache.bytes >= cache.bytes_full:
        return Content(f"{size(cache.bytes)} allocated, full: {size(cache.bytes_full)}")
    left = f"{size(cache.bytes)} of {size(cache.bytes_full)} full"
    less = f"{cache.bytes_full / cache.bytes:.1f}x less" if cache.bytes else ""
    return Content(left.ljust(room - len(less)) + less)
