"""Lines of a tab, and what can be chosen on them."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content

from h2o_chat.base.safe import fit
from h2o_chat.tui.widgets.theme import MUTED


@dataclass(frozen=True)
class Line:
    content: Content
    spots: tuple[tuple[int, int, int], ...] = ()
    """(first column, behind the last, position of the token that a click there chooses)."""
    title: bool = False


def title(text: str) -> Line:
    """The title of a part."""
    return Line(Content(text), title=True)


def muted(text: str) -> Line:
    return Line(Content.styled(text, MUTED))


def clipped(text: str, cells: int) -> str:
    """A word in exactly this many columns; a longer one is marked as cut."""
    return fit(text, cells) if cell_len(text) <= cells else f"{fit(text, cells - 1)}…"


def whole_words(text: str, cells: int) -> str:
    """The first words, as many as fit; at least the beginning of one."""
    if cell_len(text) <= cells:
        return text
    shown = ""
    for word in text.split():
        longer = f"{shown} {word}".lstrip()
        if cell_len(longer) > cells - 2:
            break
        shown = longer
    return f"{shown} …" if shown else clipped(text, cells).rstrip()


def window(chosen: int | None, count: int, rows: int) -> slice:
    """The lines that are shown, the chosen one among them."""
    first = 0 if chosen is None else max(min(chosen - rows // 2, count - rows), 0)
    return slice(first, first + max(rows, 0))


def chosen_at(spans: Sequence[tuple[int, int]], cursor: int | None) -> int | None:
    """Index of the (first, last) span that has the cursor."""
    if cursor is None:
        return None
    return next((at for at, (first, last) in enumerate(spans) if first <= cursor <= last), None)
