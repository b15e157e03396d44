"""Axes of the strip: which positions each cell of a row stands for, in a conversation of any length.

An axis is a list of edges, one more than it has cells: cell i stands for the positions from edges[i] up to
edges[i + 1], at least one. The cost depends on the cells, not on the conversation.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

Axis = Literal["linear", "turns", "age"]

LINEAR_TOKENS = 32
"""Most tokens a cell on the linear axis: beyond, memory would be a single lit cell."""
TURNS_TOKENS = 512
"""Most tokens a cell on the axis by turns, where every turn has room for its name."""
NAME_CELLS = 3
"""Columns of a name, the line in front of it included."""


def choose(seen: int, cells: int, messages: int) -> Axis:
    """The axis that is readable at this length."""
    if seen <= cells * LINEAR_TOKENS:
        return "linear"
    return "turns" if seen <= cells * TURNS_TOKENS and NAME_CELLS * messages <= cells else "age"


def edges_of(axis: Axis, seen: int, cells: int, firsts: Sequence[int]) -> list[int]:
    """The edges for `seen` tokens whose messages begin at the positions `firsts`."""
    if seen <= 0 or cells <= 0:
        return []
    match axis:
        case "linear":
            return linear(0, seen, cells)
        case "turns":
            return by_turns(seen, cells, firsts)
        case "age":
            return by_age(seen, cells)


def linear(first: int, end: int, cells: int) -> list[int]:
    """Cells of equal size; fewer where there are fewer tokens."""
    cells = min(cells, end - first)
    return [first + at * (end - first) // cells for at in range(cells + 1)]


def by_turns(seen: int, cells: int, firsts: Sequence[int]) -> list[int]:
    """Every message gets the same number of cells, or one for each of its tokens; within it they are equal.

    Where there are more messages than cells, each cell stands for several messages.
    """
    starts = [0, *(first for first in firsts if 0 < first < seen)]
    step = -(-len(starts) // cells)
    starts = [*starts[::step], seen]
    parts = list(pairwise(starts))
    given = [0] * len(parts)
    left = cells
    for done, at in enumerate(sorted(range(len(parts)), key=lambda at: parts[at][1] - parts[at][0])):
        given[at] = min(left // (len(parts) - done), parts[at][1] - parts[at][0])
        left -= given[at]
    edges = [0]
    for (first, end), own in zip(parts, given, strict=True):
        edges += linear(first, end, own)[1:]
    return edges


def by_age(seen: int, cells: int) -> list[int]:
    """The newest tokens one by one; the older they are, the more of them in a cell."""
    if seen <= cells or cells == 1:
        return linear(0, seen, cells)
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
