"""The memory panel: how full, in tokens and bytes, what it costs, and what is kept for being important."""

from textual.content import Content
from textual.widget import Widget

from h2o_chat.events import CacheState, Heavy
from h2o_chat.tui.glyphs import bar, percent, size, spark
from h2o_chat.tui.memory import Memory
from h2o_chat.tui.safe import fit, token_label
from h2o_chat.tui.theme import MUTED

LABEL_CELLS = 7


class MemoryPanel(Widget):
    """Drawn as a whole, frame included, from `Memory`; one node, redrawn when the cache reports."""

    DEFAULT_CSS = """
    MemoryPanel { width: 46; height: 1fr; color: $border; }
    """

    def __init__(self, memory: Memory, id: str) -> None:
        super().__init__(id=id)
        self._memory = memory

    def render(self) -> Content:
        width, height = self.size
        if width < 24 or height < 4:
            return Content()
        inner = width - 4
        policy = token_label(self._memory.session.policy) if self._memory.session else ""
        lines = [_edge("╭", "memory", policy, "╮", width)]
        lines += [_row(line, inner) for line in self._summary(inner)]
        lines.append(_edge("├", "heavy hitters", f"held by n/{self._memory.caches} caches", "┤", width))
        lines += [_row(line, inner) for line in self._heavy(inner, height - len(lines) - 1)]
        lines += [_row(Content(), inner)] * (height - len(lines) - 1)
        lines.append(_edge("╰", "", "", "╯", width))
        return Content("\n").join(lines[: height - 1] + lines[-1:])

    def _summary(self, inner: int) -> list[Content]:
        cache = self._memory.cache
        if cache is None:
            return [Content.styled("nothing seen yet", MUTED)]
        room = inner - LABEL_CELLS
        history = spark(list(self._memory.lost)[-max(room - 13, 1) :])
        return [
            self._occupancy(cache, room),
            _labelled("", self._kinds(cache)),
            _labelled("bytes", _bytes(cache, room)),
            _labelled("lost", Content.assemble(fit(f"{percent(cache.lost)}/tok", 13), (history, "$accent"))),
        ]

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
        fixed = f"{rank:>2} "
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
    MemoryLine { height: 1; padding: 0 1; color: $text-muted; }
    """

    def __init__(self, memory: Memory, id: str) -> None:
        super().__init__(id=id)
        self._memory = memory

    def render(self) -> Content:
        cache, session = self._memory.cache, self._memory.session
        if cache is None or session is None:
            return Content("nothing remembered yet")
        of = "" if session.budget is None else f"/{session.budget}"
        line = f"{cache.kept}{of} · {percent(cache.lost)} lost"
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


def _row(line: Content, inner: int) -> Content:
    """A line inside the frame, cut or filled to its width."""
    shown = line.truncate(inner)
    return Content.assemble("│ ", shown.pad_right(inner - shown.cell_length), " │")


def _edge(left: str, title: str, note: str, right: str, width: int) -> Content:
    """A border line with a title on the left and a note on the right."""
    start = f"{left}─ " if title else f"{left}─"
    head = Content.assemble(start, (title, "bold $foreground"), " " if title else "")
    tail = Content.assemble(" " if note else "", (note, MUTED), f" ─{right}" if note else f"─{right}")
    return head + "─" * max(width - head.cell_length - tail.cell_length, 0) + tail
