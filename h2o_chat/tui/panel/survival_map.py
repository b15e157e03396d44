"""The survival map: a row is a step, a column a range of positions, a mark how many heads held it."""

from textual.content import Content

from h2o_chat.base.glyphs import MARKS, height, short
from h2o_chat.chat.memory.survival import Survival, SurvivalStep
from h2o_chat.tui.widgets.theme import MUTED

LABEL_CELLS = 7


def draw(lives: Survival, width: int, rows: int) -> list[Content]:
    """The map, newest step last, and a line that names the ends of its columns."""
    if not lives.steps or rows < 2:
        return [Content.styled("no step yet" if rows >= 2 else "no room", MUTED)][:rows]
    seen, steps, cells = lives.steps[-1].seen, lives.steps, max(width - LABEL_CELLS, 1)
    shown = min(rows - 1, len(steps))
    lines = []
    for row in range(shown):
        step = steps[(row + 1) * len(steps) // shown - 1]
        marks = "".join(_mark(step, lives.width, *_range(cell, cells, seen)) for cell in range(cells))
        lines.append(Content.assemble((f"{short(step.seen):>{LABEL_CELLS - 1}} ", MUTED), (marks, "$accent")))
    left, right = "the oldest", "the newest"
    axis = f"{'↑ read':<{LABEL_CELLS}}{left}{right:>{max(cells - len(left), 0)}}"
    return [*lines, Content.styled(axis, MUTED)]


def _range(cell: int, cells: int, seen: int) -> tuple[int, int]:
    first = cell * seen // cells
    return first, max((cell + 1) * seen // cells, first + 1)


def _mark(step: SurvivalStep, width: int, first: int, end: int) -> str:
    end = min(end, step.seen)
    if first >= end:
        return " "
    ranges = range(first // width, -(-end // width))
    tokens = min(ranges.stop * width, step.seen) - ranges.start * width
    return height(sum(step.held[at] for at in ranges) / tokens).replace(" ", MARKS["·"])
