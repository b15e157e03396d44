"""A plot of score against rank on logarithmic axes, where a power law is a straight line.

Some policies rank by numbers that may be negative: then that axis is linear, and nothing is fitted.
"""

from math import log10

from textual.content import Content

from h2o_chat.base.glyphs import number, short
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.tui.widgets.theme import MUTED

LABEL_CELLS = 8
POINT, FIT, CUT, HERE = "•", "·", "┊", "◆"


def draw(memory: CacheView, width: int, rows: int) -> list[Content]:
    """The plot, its axes, and a line about the fitted power law."""
    points = memory.cache.ranks if memory.cache else []
    if len(points) < 2 or rows < 5:
        return [Content.styled("no scores yet" if rows >= 5 else "no room", MUTED)]
    powers = all(score > 0 for _, score in points)
    scale = log10 if powers else float
    budget = memory.session.budget if memory.session else None
    last = max(points[-1][0], budget or 0, 2)
    top, bottom = points[0][1], points[-1][1]
    plot = _Plot(width - LABEL_CELLS, rows - 2, last, scale(top), scale(bottom))
    fitted = " no power law"
    if powers:
        slope, start = power_law(points)
        fitted = f" score ~ rank^{slope:.2f}"
        for column in range(plot.width):
            rank = plot.rank_at(column)
            plot.mark(rank, start + slope * log10(rank), FIT)
    if budget is not None:
        plot.line(budget, CUT)
    for rank, score in points:
        plot.mark(rank, scale(score), POINT)
    heavy = memory.heavy(memory.pointed) if memory.pointed is not None else None
    if heavy and (heavy[1].score > 0 or not powers):
        plot.mark(_rank_of(heavy[1].score, points), scale(heavy[1].score), HERE)
    labels = [number(top), *[""] * (rows - 4), number(bottom)]
    lines = [
        Content.assemble((f"{label:>{LABEL_CELLS - 1}}┤", MUTED), ("".join(row), "$accent"))
        for label, row in zip(labels, plot.cells, strict=True)
    ]
    cut = f"  {CUT} budget {budget}" if budget is not None else ""
    return [
        *lines,
        Content.styled(" " * LABEL_CELLS + _axis(plot), MUTED),
        Content(fitted + cut + (f"  {HERE} here" if heavy else "")),
    ]


def power_law(points: list[tuple[int, float]]) -> tuple[float, float]:
    """(slope, log10 of the score at rank 1) of the straight line through the logarithms, least squares."""
    xs, ys = [log10(rank) for rank, _ in points], [log10(score) for _, score in points]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((one - x) ** 2 for one in xs)
    slope = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread if spread else 0.0
    return slope, y - slope * x


def _rank_of(score: float, points: list[tuple[int, float]]) -> int:
    return next((rank for rank, one in points if one <= score), points[-1][0])


class _Plot:
    """Characters in a grid, addressed by rank and score, or its logarithm."""

    def __init__(self, width: int, height: int, last: int, top: float, bottom: float) -> None:
        self.width, self.last = max(width, 2), last
        self._height, self._top = max(height, 2), top
        # Halved, since the difference of two numbers may be too large for one.
        self._per_row = max(top / 2 - bottom / 2, 1e-9) / (self._height - 1)
        self.cells = [[" "] * self.width for _ in range(self._height)]

    def column(self, rank: float) -> int:
        return min(round(log10(max(rank, 1)) / log10(self.last) * (self.width - 1)), self.width - 1)

    def rank_at(self, column: int) -> float:
        return float(self.last ** (column / (self.width - 1)))

    def mark(self, rank: float, score: float, sign: str) -> None:
        row = (self._top / 2 - score / 2) / self._per_row
        if -0.5 <= row < self._height - 0.5:
            self.cells[round(row)][self.column(rank)] = sign

    def line(self, rank: float, sign: str) -> None:
        for row in self.cells:
            row[self.column(rank)] = sign


def _axis(plot: _Plot) -> str:
    """The powers of ten that fit, and the name of the axis."""
    line, rank = [" "] * (plot.width + 8), 1
    free = 0
    while rank <= plot.last:
        at, label = plot.column(rank), short(rank)
        if at >= free and at + len(label) <= plot.width - 5:
            line[at : at + len(label)] = label
            free = at + len(label) + 1
        rank *= 10
    return "".join(line)[: plot.width - 4].ljust(plot.width - 4) + "rank"
