"""The remember strip: the whole conversation in one row: how much is held, of what kind, who said it."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click, MouseMove
from textual.widget import Widget

from h2o_chat.base.glyphs import height, percent
from h2o_chat.base.safe import fit, safe_text, token_label
from h2o_chat.chat.conversation.message import numbered, speaker
from h2o_chat.chat.memory.cache_view import CacheView, Kind
from h2o_chat.tui.transcript.choice import Pointed
from h2o_chat.tui.widgets.box_frame import edge, row, whole_words
from h2o_chat.tui.widgets.theme import KIND_STYLES, MUTED

TALLEST = ", height of the most held"
TITLE = "what the model still remembers"
WORDS_TOKENS, WORDS_CELLS = 8, 30
"""A cell of at most WORDS_TOKENS shows all its words, in at most WORDS_CELLS columns."""
LARGE_TOKENS = 32
"""A cell of more tokens is as high as its most held one."""
LEGENDS = (
    "a tall block: many heads hold it   H important   R newest   S pinned   · forgotten",
    "tall: many heads H important R newest S pinned · forgotten",
    "H important R newest S pinned · forgotten",
)
"""Explanations of the marks; the first that fits is shown."""
NAME_CELLS = 3
"""Columns of a name, the line in front of it included."""
LINEAR_TOKENS = 32
"""Most tokens a cell of equal size: beyond, memory would be a single lit cell."""


@dataclass(frozen=True)
class Cell:
    """The positions from `first` up to `end`."""

    first: int
    end: int
    hold: float
    """Mean hold of all its tokens, evicted ones included; in large cells that of the most held token."""
    kind: Kind
    """The kind of most of its tokens, or of that token; `S` if any is protected."""
    held_most: int
    """Position of the token that most caches hold, the newest of those; the first one where none is held."""


def is_linear(seen: int, cells: int) -> bool:
    """Whether all cells stand for as many tokens; else those of old tokens stand for more."""
    return seen <= cells * LINEAR_TOKENS


def edges_of(seen: int, cells: int) -> list[int]:
    """The edges, one more than there are cells: cell i has the positions from edges[i] up to edges[i + 1]."""
    if seen <= 0 or cells <= 0:
        return []
    return linear(seen, cells) if is_linear(seen, cells) else by_age(seen, cells)


def linear(seen: int, cells: int) -> list[int]:
    """Cells of equal size; fewer where there are fewer tokens."""
    cells = min(cells, seen)
    return [at * seen // cells for at in range(cells + 1)]


def by_age(seen: int, cells: int) -> list[int]:
    """The newest tokens one by one; the older they are, the more of them in a cell."""
    if seen <= cells or cells == 1:
        return linear(seen, cells)
    low, high = 1.0, float(seen)
    for _ in range(40):  # the ratio at which the last cell just reaches the first token
        ratio = (low + high) / 2
        low, high = (ratio, high) if _ages(ratio, cells, seen)[-1] < seen else (low, ratio)
    ages = _ages(high, cells, seen)
    return [seen - age for age in reversed(ages[: ages.index(seen) + 1])]


def _ages(ratio: float, cells: int, seen: int) -> list[int]:
    ages = [0]
    for _ in range(cells):
        ages.append(min(max(ages[-1] + 1, round(ages[-1] * ratio)), seen))
    return ages


def cells_of(memory: CacheView, edges: list[int]) -> list[Cell]:
    """The cells of an axis; the cost depends on what is held, not on the conversation."""
    count = len(edges) - 1
    # The mean hold of large cells would be next to nothing everywhere.
    mean = all(end - first <= LARGE_TOKENS for first, end in pairwise(edges))
    total, held, recent = [0.0] * count, [0] * count, [0] * count
    most: list[tuple[float, int]] = [(0.0, first) for first in edges[:-1]]
    recent_from = memory.recent_from
    for position, hold in memory.hold.items():
        at = bisect_right(edges, position) - 1
        if 0 <= at < count:
            total[at] += hold
            held[at] += 1
            recent[at] += position >= recent_from
            most[at] = max(most[at], (hold, position))
    protected = _protected(memory, edges)
    cells = []
    for at, (first, end) in enumerate(pairwise(edges)):
        kind: Kind = memory.kind(most[at][1])  # forgotten only where no head holds any of it
        if mean and held[at]:
            kind = "R" if 2 * recent[at] >= held[at] else "H"
        hold = total[at] / (end - first) if mean else most[at][0]
        cells.append(Cell(first, end, hold, "S" if at in protected else kind, most[at][1]))
    return cells


def _protected(memory: CacheView, edges: list[int]) -> set[int]:
    runs = list(memory.cache.protected) if memory.cache else []
    if memory.cache and not runs and not memory.cache.whole and memory.is_protected(0):
        runs = [(0, memory.cache.kinds["S"] - 1)]  # recorded before runs were told
    found: set[int] = set()
    for first, last in runs:
        start = max(bisect_right(edges, first) - 1, 0)
        found.update(range(start, min(bisect_left(edges, last + 1), len(edges) - 1)))
    return found


@dataclass
class _Group:
    """Messages that begin so near each other that their names have no room."""

    first: int
    last: int
    """The cells in which the first and the last of them begin."""
    messages: int
    name: str


class RememberStrip(Widget, can_focus=True):
    """Drawn from `CacheView`; the arrows and the mouse move along it, and the transcript follows."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "go(-1)", "earlier", tooltip="earlier in the conversation"),
        Binding("right", "go(1)", "later", tooltip="later in it"),
        Binding("up", "turn(-1)", "the message before", show=False),
        Binding("down", "turn(1)", "the next message", show=False),
        Binding("home", "end(0)", "the beginning", show=False),
        Binding("end", "end(-1)", "the end", show=False),
        Binding("escape", "leave", "leave the token"),
    ]

    def __init__(self, memory: CacheView, id: str) -> None:
        super().__init__(id=id)
        self._memory = memory
        self._drawn: tuple[object, ...] = ()
        self._cells: list[Cell] = []

    # Drawing

    def cells(self) -> list[Cell]:
        """The present cells; computed once for each state of the cache."""
        memory = self._memory
        key = (memory.states, len(memory.spans), self._room)
        if key != self._drawn:
            edges = edges_of(memory.seen, self._room)
            self._drawn, self._cells = key, cells_of(memory, edges) if edges else []
        return self._cells

    @property
    def _framed(self) -> bool:
        return self.size.height >= 5

    @property
    def _room(self) -> int:
        return max(self.size.width - (4 if self._framed else 2), 1)

    @property
    def _here(self) -> int | None:
        cursor, cells = self._memory.cursor, self.cells()
        if cursor is None or not cells or not cells[0].first <= cursor < cells[-1].end:
            return None
        return bisect_right(cells, cursor, key=lambda cell: cell.first) - 1

    def render(self) -> Content:
        width, inner = self.size.width, self._room
        cells, here = self.cells(), self._here
        marks, kinds = [], []
        for at, cell in enumerate(cells):
            style = KIND_STYLES[cell.kind] + (" reverse" if at == here else "")
            marks.append((height(cell.hold), style))
            kinds.append((cell.kind, style))
        rows = [Content.assemble(*marks), Content.assemble(*kinds)]
        legend = next((one for one in LEGENDS if cell_len(one) <= inner), "")
        if not cells:
            rows[0] = Content.styled("nothing read yet", MUTED)
        if not self._framed:
            mark = "▸" if self.has_focus else " "
            below = [Content(" ") + line for line in (rows[1], Content.styled(legend, MUTED))]
            return Content("\n").join([Content(mark) + rows[0], *below])
        lines = [row(line, inner) for line in [*rows, Content.styled(self._labels(inner), MUTED)]]
        title = f"▸ {TITLE}" if self.has_focus else TITLE
        top = edge("╭", title, self._note(here), "╮", width)
        return Content("\n").join([top, *lines, edge("╰", Content.styled(legend, MUTED), "", "╯", width)])

    def _note(self, here: int | None) -> str:
        """The meaning of a cell; for the one under the cursor, what it holds."""
        cells = self.cells()
        if not cells:
            return ""
        if here is not None and self.has_focus:
            cell = cells[here]
            span, words = self._memory.span(cell.held_most), self._words(cell)
            who = f"{numbered(span.index)} {self._who(span.role)} · " if span else ""
            return f"{who}{f'“{words}” · ' if words else ''}{percent(cell.hold)} of heads"
        sizes = [cell.end - cell.first for cell in cells]
        least, most = min(sizes), max(sizes)
        # Cells of equal size differ by one token where they do not come out even.
        size = f"{most:,}" if most - least <= 1 else f"{least:,} to {most:,}"
        by_age = "" if is_linear(self._memory.seen, self._room) else "by age · "
        return f"{by_age}1 cell = {size} token{'s' * (most > 1)}{TALLEST * (most > LARGE_TOKENS)}"

    def _words(self, cell: Cell) -> str:
        """The words in a cell; in a large one the word that most heads hold."""
        large = cell.end - cell.first > WORDS_TOKENS
        tokens = range(cell.held_most, cell.held_most + 1) if large else range(cell.first, cell.end)
        found = (self._memory.word(position) for position in tokens)
        words = {word.first: safe_text(word.text) for word in found if word}
        return whole_words(" ".join(words.values()), WORDS_CELLS)

    def _labels(self, inner: int) -> str:
        """The names of the speakers, under the cells whose turn it is, where there is room."""
        spans = self._memory.spans
        groups: list[_Group] = []
        done = 0
        for at, cell in enumerate(self.cells()):
            end = bisect_left(spans, cell.end, key=lambda span: span.first)
            if end == done:
                continue
            span = spans[done]
            name = f"{numbered(span.index)} {self._who(span.role)}" if end - done == 1 else ""
            if groups and at - groups[-1].last < NAME_CELLS:
                groups[-1].messages += end - done
                groups[-1].last, groups[-1].name = at, ""
            else:
                groups.append(_Group(at, at, end - done, name))
            done = end
        unread = spans[-1].last + 1 if spans else 0
        if self._memory.seen and self._memory.span(self._memory.seen - 1) is None:  # a prompt, in the middle
            at = bisect_right(self.cells(), unread, key=lambda cell: cell.first) - 1
            groups.append(_Group(max(at, 0), max(at, 0), 0, "being read"))
        line = ""
        for group, after in zip(groups, [*groups[1:], None], strict=False):
            until = after.first if after else inner
            name, room = group.name or f"{group.messages:,} messages", until - group.first
            # In whole words, as many as there is room for; a number is never cut.
            names = [name, name.partition(" ")[0]]
            if after is None:
                names = [f"{name} · now", *names, "now"]
            name = next((one for one in names if cell_len(one) < room), "")
            line = line.ljust(group.first) + fit(f"│{name}", room)
        return line

    def _who(self, role: str) -> str:
        if role == "assistant":
            return token_label(speaker(role, self._memory.session.model if self._memory.session else "model"))
        return {"user": "you", "system": "sys"}.get(role, role)

    # Keys and mouse

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self._memory.cursor is not None if action == "leave" else True

    def action_leave(self) -> None:
        self.post_message(Pointed(None))

    def action_go(self, step: int) -> None:
        if cells := self.cells():
            here = self._here
            self._point(len(cells) - 1 if here is None else here + step)

    def action_turn(self, step: int) -> None:
        cells, firsts = self.cells(), [span.first for span in self._memory.spans]
        if not cells or not firsts:
            return
        cursor = self._memory.seen if self._memory.cursor is None else self._memory.cursor
        at = bisect_right(firsts, cursor) - 1 + step if step > 0 else bisect_left(firsts, cursor) - 1
        self.post_message(Pointed(firsts[max(0, min(at, len(firsts) - 1))], follow=True))

    def action_end(self, at: int) -> None:
        if cells := self.cells():
            self._point(at % len(cells))

    def on_click(self, event: Click) -> None:
        self._scrub(event.x)

    def on_mouse_move(self, event: MouseMove) -> None:
        if event.button:
            self._scrub(event.x)

    def _scrub(self, x: int) -> None:
        at = x - (2 if self._framed else 1)
        if 0 <= at < len(self.cells()):
            self._point(at)

    def _point(self, at: int) -> None:
        cells = self.cells()
        self.post_message(Pointed(cells[max(0, min(at, len(cells) - 1))].held_most, follow=True))
