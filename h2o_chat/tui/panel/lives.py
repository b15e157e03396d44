"""The survival map: a row is a step, a column a range of positions, a mark how many heads held it."""

from dataclasses import dataclass, field

from textual.content import Content

from h2o_chat.tui.glyphs import MARKS, height, short
from h2o_chat.tui.theme import MUTED

COLUMNS = 256
"""The most ranges of positions; when they are used up, neighbours become one."""
STEPS = 64
"""The most rows; when they are used up, every second one is forgotten."""
LABEL_CELLS = 7


@dataclass
class Step:
    """What was held when so much had been seen."""

    seen: int
    held: list[float]
    """The sum of hold in each range."""


@dataclass
class Lives:
    """The history of a conversation in a fixed amount of memory, however long it is."""

    width: int = 1
    """Positions in a range: a power of two."""
    steps: list[Step] = field(default_factory=list)
    _every: int = 1
    """So many states make a row: a power of two."""
    _skipped: int = 0

    def add(self, seen: int, hold: dict[int, float]) -> None:
        """One more state; `hold` by position, of the tokens that are held."""
        while self.steps and self.steps[-1].seen > seen:  # the conversation went back
            self.steps.pop()
        while seen > self.width * COLUMNS:
            self.width *= 2
            for step in self.steps:
                step.held = [sum(step.held[at : at + 2]) for at in range(0, len(step.held), 2)]
        held = [0.0] * -(-seen // self.width)
        for position, share in hold.items():
            if 0 <= position < seen:
                held[position // self.width] += share
        if self._skipped and self.steps:
            self.steps.pop()  # the newest one stays only until the next, unless its turn has come
        self.steps.append(Step(seen, held))
        self._skipped = (self._skipped + 1) % self._every
        if len(self.steps) > STEPS and not self._skipped:
            self.steps = self.steps[::2]
            self._every *= 2
            self._skipped = 0


def draw(lives: Lives, width: int, rows: int) -> list[Content]:
    """The map, newest step last, and a line that says which tokens its columns are."""
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
    """Positions of one cell; each has at least one, so a short conversation repeats its tokens."""
    first = cell * seen // cells
    return first, max((cell + 1) * seen // cells, first + 1)


def _mark(step: Step, width: int, first: int, end: int) -> str:
    """Of the ranges that a cell touches; blank where nothing had been said yet."""
    end = min(end, step.seen)
    if first >= end:
        return " "
    ranges = range(first // width, -(-end // width))
    tokens = min(ranges.stop * width, step.seen) - ranges.start * width
    return height(sum(step.held[at] for at in ranges) / tokens).replace(" ", MARKS["·"])
