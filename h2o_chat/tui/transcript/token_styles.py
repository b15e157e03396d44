"""The styles of a piece at this moment: heat, cursor, matches, selection."""

from textual.content import Content
from textual.selection import Selection
from textual.style import Style

from h2o_chat.base.glyphs import heads
from h2o_chat.tui.transcript.heat import Heat
from h2o_chat.tui.transcript.message_body import BodyPiece
from h2o_chat.tui.transcript.text_search import Finder
from h2o_chat.tui.transcript.turn import INDENT, TurnView

CURSOR = "reverse bold underline"


def styled_piece(view: TurnView, piece: BodyPiece, heat: Heat, finder: Finder, width: int) -> Content:
    """A piece with the styles of the moment; its length and its rows stay the same.

    Args:
        width: columns of the transcript.
    """
    if piece.fold:
        line = Content.styled(fold_line(view, heat), "italic")
        return line.truncate(max(width - INDENT - 1, 1), ellipsis=True)
    content = piece.content
    if piece.start >= 0 and view.tokens is not None:
        end = piece.start + len(content)
        content = content.add_spans([*heat.spans(view.tokens, piece.start, end)])
        cursor = heat.memory.cursor
        span = view.tokens.span(cursor) if cursor is not None else None
        if span is not None and span[0] < end and span[1] > piece.start:
            content = content.stylize(CURSOR, max(span[0] - piece.start, 0), span[1] - piece.start)
    if view.index is not None and finder.words:
        content = finder.mark(view, _before(view, piece), content)
    return content


def fold_line(view: TurnView, heat: Heat) -> str:
    """The line of a fold: how much is folded, and how much of that is held."""
    lines = view.source[view.folds :].count("\n") + 1
    what, held = f"{lines:,} line{'s' if lines > 1 else ''}", ""
    if view.tokens is not None:
        start, end = view.tokens.own(view.source)
        first = view.tokens.at(min(start + view.folds + 1, end - 1))  # behind the end of the last line
        last = view.tokens.at(end - 1)
        if first is not None and last is not None:
            what = f"{last + 1 - first:,} tokens"
            held = f" · {heads(heat.held(first, last), heat.memory.caches)}"
    return f"… ⋮ {what} folded{held} · a click unfolds"


def _before(view: TurnView, piece: BodyPiece) -> int:
    at = 0
    for one in view.pieces:
        if one is piece:
            break
        at += len(one.content) + len(one.joint)
    return at


def selected(piece: BodyPiece, content: Content, selection: Selection, line: int, style: Style) -> Content:
    """Content with the selected part styled; the text of the message begins at `line`."""
    at = 0
    for number, text in enumerate(content.plain.split("\n")):
        span = selection.get_span(line + piece.y + number)
        if span is not None:
            shift = piece.x if number == 0 else 0
            end = len(text) if span[1] < 0 else min(max(span[1] - shift, 0), len(text))
            content = content.stylize(style, at + min(max(span[0] - shift, 0), len(text)), at + end)
        at += len(text) + 1
    return content
