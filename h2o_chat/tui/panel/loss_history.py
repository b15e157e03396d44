"""The second tab: the survival map, and what was evicted, in words."""

from textual.content import Content

from h2o_chat.base.glyphs import MARKS, height, short
from h2o_chat.chat.memory.cache_view import CacheView, Survival, SurvivalStep
from h2o_chat.chat.memory.remembered_words import forgotten
from h2o_chat.tui.panel import evictions
from h2o_chat.tui.widgets.box_frame import Line, title
from h2o_chat.tui.widgets.theme import MUTED

LEGEND = "taller: more heads hold it   · forgotten"


def draw(memory: CacheView, inner: int, rows: int) -> list[Line]:
    """The map above, the evicted words below, in at most this many lines."""
    low = max(rows // 3, 1) if rows >= 6 else 0
    high = rows - 1 - (low + 1 if low else 0)
    lines = [title("what was held, when so many tokens were read")]
    lines += map(Line, survival_map(memory.survival, inner, high))
    if low:
        lines += [
            title("forgotten: of which message, since which"),
            *evictions.in_words(memory, inner, rows - len(lines) - 1),
        ]
    return lines[:rows]


def order(memory: CacheView) -> list[tuple[int, int]]:
    """(first, last) position of what can be chosen, in order."""
    return [(phrase.first, phrase.last) for phrase in forgotten(memory)]


LABEL_CELLS = 7


def survival_map(lives: Survival, width: int, rows: int) -> list[Content]:
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
