"""Which character of a message is drawn where, and which token it belongs to."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from rich.cells import cell_len
from textual.strip import Strip

from h2o_chat.tui.transcript.drawing import Canvas, offset
from h2o_chat.tui.transcript.message_body import BodyPiece
from h2o_chat.tui.transcript.turn import INDENT, TurnView


def shows(view: TurnView, position: int) -> bool:
    """Whether a token has characters of its own in the shown pieces."""
    if view.tokens is None or not view.tokens.own_text(position):
        return False
    span = view.tokens.span(position)
    return span is not None and any(
        piece.start >= 0 and span[0] < piece.start + len(piece.content) and span[1] > piece.start
        for piece in view.pieces
    )


def spot(view: TurnView, at: int, width: int, canvas: Canvas, *, raw: bool) -> tuple[int, int]:
    """(row, column) of a character, within its message.

    Args:
        at: index in the shown text; with `raw`, in the text of its tokens.
    """
    before = 0
    for piece, row in zip(view.pieces, view.starts(width), strict=False):
        start = piece.start if raw else before
        if 0 <= start <= at <= start + len(piece.content):
            rows = _wrapped(piece, width, canvas)
            below = max(bisect_right([first for first, _ in rows], at - start) - 1, 0)
            return row + below, INDENT + cell_len(rows[below][1][: at - start - rows[below][0]])
        before += len(piece.content) + len(piece.joint)
    return view.titled, INDENT


def character(view: TurnView, row: int, column: int, width: int, canvas: Canvas) -> int | None:
    """Index in the text of its tokens of the character drawn there; None where there is none."""
    piece, local = view.at(row, width)
    if piece is None or piece.start < 0:
        return None
    rows = _wrapped(piece, width, canvas)
    if local >= len(rows) or column < INDENT:
        return None
    start, shown = rows[local]
    ends = list(accumulate(map(cell_len, shown), initial=INDENT))
    number = bisect_right(ends, column) - 1
    return piece.start + start + number if number < len(shown) else None


def _wrapped(piece: BodyPiece, width: int, canvas: Canvas) -> list[tuple[int, str]]:
    """(first character, shown text) of each row of a piece."""
    content = piece.content.without_spans
    strips: Sequence[Strip] = canvas.draw(content, max(width - INDENT - 1, 1))
    lines = [0, *(at + 1 for at, character in enumerate(content.plain) if character == "\n")]
    rows, y = [], -1
    for strip in strips:
        x, y = offset(list(strip), y + 1)
        rows.append((lines[y] + x, strip.text))
    return rows
