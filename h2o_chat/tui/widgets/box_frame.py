"""Frames drawn as text: a border line with words in it, a row between two borders."""

from itertools import pairwise

from rich._wrap import divide_line
from textual.content import Content

from h2o_chat.tui.widgets.theme import MUTED


def row(line: Content, inner: int, pad: str = " ") -> Content:
    shown = line.truncate(inner)
    return Content.assemble(f"│{pad}", shown.pad_right(inner - shown.cell_length), f"{pad}│")


def edge(left: str, title: str | Content, note: str, right: str, width: int) -> Content:
    """A border line with a title on the left and a note on the right; the note is dropped where both do not
    fit."""
    start = f"{left}─ " if title else f"{left}─"
    head = Content.assemble(start, (title, "bold $foreground") if isinstance(title, str) else title)
    head += " " if title else ""
    if head.cell_length + len(note) + 4 > width:
        note = ""
    tail = Content.assemble(" " if note else "", (note, MUTED), f" ─{right}" if note else f"─{right}")
    gap = max(width - head.cell_length - tail.cell_length, 0)
    return head.truncate(max(width - tail.cell_length, 0)) + "─" * gap + tail


def wrapped(text: str, cells: int) -> list[str]:
    """Lines of so many columns, broken between words where possible."""
    breaks = [0, *divide_line(text, cells), len(text)]
    return [text[start:end].rstrip() for start, end in pairwise(breaks)]
