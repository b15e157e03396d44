"""Frames and lines drawn as text: a border with words in it, a row between two borders, what fits a line."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content

from h2o_chat.base.safe import fit
from h2o_chat.tui.widgets.theme import MUTED


def row(line: Content, inner: int) -> Content:
    shown = line.truncate(inner)
    return Content.assemble("│ ", shown.pad_right(inner - shown.cell_length), " │")


def edge(left: str, title: str | Content, note: str, right: str, width: int) -> Content:
    """A border line: a title on the left, on the right a note, which is dropped where both do not fit."""
    start = f"{left}─ " if title else f"{left}─"
    head = Content.assemble(start, (title, "bold $foreground") if isinstance(title, str) else title)
    head += " " if title else ""
    if head.cell_length + len(note) + 4 > width:
        note = ""
    tail = Content.assemble(" " if note else "", (note, MUTED), f" ─{right}" if note else f"─{right}")
    gap = max(width - head.cell_length - tail.cell_length, 0)
    return head.truncate(max(width - tail.cell_length, 0)) + "─" * gap + tail


@dataclass(frozen=True)
class Line:
    content: Content
    spots: tuple[tuple[int, int, int], ...] = ()
    """(first column, behind the last, position of the token that a click there chooses)."""
    title: bool = False


def title(text: str) -> Line:
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
