"""Draws a table of an answer: as a grid, or one line a cell where the grid has no room.

Nothing is lost: a row may have more cells than the header, which Markdown would leave out.
"""

import re
from collections.abc import Callable, Sequence

from textual.content import Content

from h2o_chat.tui.widgets.theme import MUTED

LEAST_CELLS = 8
"""Columns of the screen below which a column of the table cannot be read."""
MOST_CELLS = 400
"""Widest column, where the width of the screen is unknown."""

Row = Sequence[Content]


def split(line: str) -> list[str]:
    """The cells of a line; an escaped bar stays in its cell."""
    cells = re.split(r"(?<!\\)\|", line.strip().removeprefix("|"))
    if len(cells) > 1 and not cells[-1].strip():
        cells.pop()  # the bar at the end
    return [cell.strip().replace("\\|", "|") for cell in cells]


def without_header(source: str) -> str:
    """Lines that open the same table again, with an empty header."""
    head, marks = source.split("\n")[:2]
    return "|" + " |" * len(split(head)) + f"\n{marks.strip()}\n"


def draw(source: str, width: int, inline: Callable[[str], Content]) -> Content:
    """A table as it stands in the text.

    Args:
        width: columns of the screen; 0 where it is not known yet.
        inline: draws the text of a cell.
    """
    head, marks, *lines = source.split("\n")
    cells = [[inline(cell) for cell in split(line)] for line in [head, *lines]]
    count = max(map(len, cells))
    rows = [row + [Content()] * (count - len(row)) for row in cells]
    right = [mark.endswith(":") and not mark.startswith(":") for mark in split(marks)]
    right += [False] * (count - len(right))
    header = [cell.stylize("bold") for cell in rows[0]] if any(cell.plain for cell in rows[0]) else None
    widths = _widths(rows, width)
    if widths is None:
        return _listed(header, rows[1:])
    drawn = [_grid(row, widths, right) for row in rows[1:]]
    if header is not None:
        rule = Content.styled("─┼─".join("─" * cells for cells in widths), MUTED)
        drawn[:0] = [_grid(header, widths, right), rule]
    return Content("\n").join(drawn)


def _widths(rows: Sequence[Row], width: int) -> list[int] | None:
    """Width of each column of the table; None: they have no room beside each other."""
    most = min(width, MOST_CELLS) or MOST_CELLS
    widths = [max(1, *(min(cell.cell_length, most) for cell in column)) for column in zip(*rows, strict=True)]
    room = width - 3 * (len(widths) - 1) if width else sum(widths)
    while sum(widths) > room:
        widest = widths.index(max(widths))
        if widths[widest] <= LEAST_CELLS:
            return None
        widths[widest] -= 1
    return widths


def _grid(row: Row, widths: Sequence[int], right: Sequence[bool]) -> Content:
    """A row of cells, wrapped in their columns."""
    wrapped = [cell.wrap(width) or [Content()] for cell, width in zip(row, widths, strict=True)]
    lines = []
    for at in range(max(map(len, wrapped))):
        parts = []
        for cell, width, to_the_right in zip(wrapped, widths, right, strict=True):
            part = cell[at].rstrip() if at < len(cell) else Content()
            missing = max(width - part.cell_length, 0)
            parts.append(part.pad_left(missing) if to_the_right else part.pad_right(missing))
        lines.append(Content.styled(" │ ", MUTED).join(parts).rstrip())
    return Content("\n").join(lines)


def _listed(header: Row | None, rows: Sequence[Row]) -> Content:
    """One line a cell, with the head of its column before it; a bar beside each row."""
    if not rows:
        rows, header = [header or []], None
    drawn = []
    for row in rows:
        names = header or [Content()] * len(row)
        cells = [
            Content.assemble(name, ": ", cell) if name.plain else cell
            for name, cell in zip(names, row, strict=True)
            if name.plain or cell.plain
        ]
        drawn.append(Content("\n").join(cells))
    return Content("\n\n").join(drawn)
