"""What a tab of the panel is made of: lines, and what can be chosen on them."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content

from h2o_chat.base.safe import fit
from h2o_chat.tui.widgets.theme import MUTED


@dataclass(frozen=True)
class Line:
    """One line inside the frame, or a line of the frame itself with a title in it."""

    content: Content
    spots: tuple[tuple[int, int, int], ...] = ()
    """(first column, behind the last, position of a token): what a click there chooses."""
    title: bool = False


def title(text: str) -> Line:
    """The beginning of another part."""
    return Line(Content(text), title=True)


def muted(text: str) -> Line:
    return Line(Content.styled(text, MUTED))


def clipped(text: str, cells: int) -> str:
    """A word in exactly so many columns; one that is longer says so."""
    return fit(text, cells) if cell_len(text) <= cells else f"{fit(text, cells - 1)}…"


def whole_words(text: str, cells: int) -> str:
    """As many words as there is room for; the first one at least, as far as it fits."""
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
    """Which of so many lines are shown, so that the chosen one is among them."""
    first = 0 if chosen is None else max(min(chosen - rows // 2, count - rows), 0)
    return slice(first, first + max(rows, 0))


def chosen_at(spans: Sequence[tuple[int, int]], cursor: int | None) -> int | None:
    """Which of these (first, last) positions has the token under the cursor."""
    if cursor is None:
        return None
    return next((at for at, (first, last) in enumerate(spans) if first <= cursor <= last), None)
