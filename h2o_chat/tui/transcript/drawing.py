"""Draws a message as rows: its title with the gauge of its hold, its pieces, an empty row."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style as TextStyle
from textual.visual import Visual

from h2o_chat.base.glyphs import gauge
from h2o_chat.base.safe import fit
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.tui.transcript.find import Finder
from h2o_chat.tui.transcript.heat import Heat, selected, styled_piece
from h2o_chat.tui.transcript.message_body import BodyPiece
from h2o_chat.tui.transcript.message_view import INDENT, MessageView
from h2o_chat.tui.transcript.window import Page
from h2o_chat.tui.widgets.theme import MUTED

COLOURS = {"user": "$secondary", "assistant": "$primary", "error": "$error"}
"""Colours of the titles, by kind."""


class Canvas:
    """Draws texts for the transcript, with the styles of the moment."""

    def __init__(self, widget: ScrollView, page: Page, heat: Heat, finder: Finder) -> None:
        self.heat = heat
        self.epoch = 0
        """Counts changes after which everything has to be drawn again."""
        self._widget, self._page, self._finder = widget, page, finder

    @property
    def ground(self) -> Style:
        """Style of empty cells."""
        return self._widget.visual_style.rich_style

    def draw(self, content: Content, width: int) -> Sequence[Strip]:
        """The rows of a text, wrapped; each segment with the offset of its first character."""
        style = self._widget.visual_style
        return Visual.to_strips(self._widget, content, width, None, style, apply_selection=False)

    def dress(self, view: MessageView, piece: BodyPiece, line: int) -> Content:
        """The content of a piece with the styles of the moment; `line` is that of the title."""
        content = styled_piece(view, piece, self.heat, self._finder, self._page.width)
        if (selection := self._widget.text_selection) is not None:
            style = TextStyle.from_styles(self._widget.screen.get_component_styles("screen--selection"))
            content = selected(piece, content, selection, line + 1, style)
        return content

    def key(self, view: MessageView, piece: BodyPiece) -> object:
        """Changes whenever `dress` gives something else."""
        heat, memory = self.heat, self.heat.memory
        warm = piece.start >= 0 or piece.fold
        marks = (heat.on, heat.quiet, memory.states, memory.cursor) if warm else None
        return self.epoch, marks, self._finder.version


def draw_row(view: MessageView, row: int, width: int, line: int, canvas: Canvas) -> Strip:
    """One row of a message; selections are given in lines, of which the title is `line`."""
    piece, local = view.at(row, width)
    if piece is None and row < view.titled:
        return _titles(view, width, line, canvas)
    if piece is None:
        return _row([], 0, line, width, canvas.ground)
    key = (width, line, canvas.key(view, piece))
    if piece.key != key:
        strips = canvas.draw(canvas.dress(view, piece, line), max(width - INDENT - 1, 1))
        piece.strips, piece.key = _rows(piece, strips, line + 1, width, canvas.ground), key
    return piece.strips[local]


def _titles(view: MessageView, width: int, line: int, canvas: Canvas) -> Strip:
    marks = (canvas.heat.quiet, view.hold, view.marked, view.pinned, view.branch, view.remark)
    key = (width, line, *marks, canvas.key(view, BodyPiece(Content())))
    if view.drawn_title is None or view.drawn_title[0] != key:
        caption = title(view, width - 1, 0 if canvas.heat.quiet else canvas.heat.memory.caches)
        strips = canvas.draw(caption, width - 1)  # none where it is painted before it has room
        styled = ((one.text, one.style or Style()) for strip in strips for one in strip)
        segments = [Segment(text, style.clear_meta_and_links()) for text, style in styled]  # without offsets
        view.drawn_title = (key, _row(segments, 0, line, width, canvas.ground, indent=1))
    return view.drawn_title[1]


def title(view: MessageView, width: int, caches: int) -> Content:
    """The text of the title; `caches` is the number of heads, 0 where the memory is not shown."""
    number = "" if view.index is None else f"{numbered(view.index)} "
    speaker = f"▸ {number}{view.name}" if view.marked else f"{number}{view.name}"
    speaker += " ‹{}/{}›".format(*view.branch) if view.branch else ""
    speaker += " · pinned" if view.pinned else ""
    speaker += f" · {view.remark}" if view.remark else ""
    right = gauge(view.hold, caches) if view.hold is not None and caches else ""
    if view.remark and cell_len(speaker) >= width - len(right):
        right = ""  # the recalled messages say more
    name = fit(speaker, max(width - len(right), 0)) if right else speaker
    colour = "$accent" if view.marked else COLOURS.get(view.kind, MUTED)
    return Content.assemble((name, f"bold {colour}"), (right, MUTED)).truncate(max(width, 1))


def selected_text(view: MessageView, selection: Selection, line: int) -> str:
    """The selected part of a message's text; `line` is that of the title."""
    lines = view.plain.split("\n")
    spans = [(text, selection.get_span(line + 1 + n)) for n, text in enumerate(lines)]
    return "\n".join(text[span[0] : None if span[1] < 0 else span[1]] for text, span in spans if span)


def _rows(piece: BodyPiece, strips: Sequence[Strip], line: int, width: int, ground: Style) -> list[Strip]:
    """The rows of a piece in full width, with offsets in lines of the whole text that begins at `line`."""
    rows, y = [], -1
    for strip in strips:
        segments = list(strip)
        x, y = offset(segments, y + 1)
        rows.append(_row(segments, x + (piece.x if y == 0 else 0), line + piece.y + y, width, ground))
    if piece.gap:
        rows.append(_row([], 0, line + piece.y + y + 1, width, ground))
    return rows


def _row(
    segments: Sequence[Segment], x: int, y: int, width: int, ground: Style, indent: int = INDENT
) -> Strip:
    """A row in full width, whose text begins at character `x` of line `y`."""
    margin = Segment(" " * indent, ground + Style.from_meta({"offset": (x, y)}))
    return Strip([margin, *Strip(segments).apply_offsets(x, y)]).adjust_cell_length(width, ground)


def offset(segments: Sequence[Segment], y: int) -> tuple[int, int]:
    """Offset of the first character of a row; an empty row is a line of its own."""
    style = segments[0].style if segments else None
    x, y = style.meta["offset"] if style and "offset" in style.meta else (0, y)
    return int(x), int(y)


def shows(view: MessageView, position: int) -> bool:
    """Whether a token has characters of its own in the shown pieces."""
    if view.tokens is None or not view.tokens.own_text(position):
        return False
    span = view.tokens.span(position)
    return span is not None and any(
        piece.start >= 0 and span[0] < piece.start + len(piece.content) and span[1] > piece.start
        for piece in view.pieces
    )


def spot(view: MessageView, at: int, width: int, canvas: Canvas, *, raw: bool) -> tuple[int, int]:
    """(row, column) of a character within its message: `at` of the shown text, or of its tokens' (`raw`)."""
    for piece, row in zip(view.pieces, view.starts(width), strict=False):
        start = piece.start if raw else piece.at
        if 0 <= start <= at <= start + len(piece.content):
            rows = _wrapped(piece, width, canvas)
            below = max(bisect_right([first for first, _ in rows], at - start) - 1, 0)
            return row + below, INDENT + cell_len(rows[below][1][: at - start - rows[below][0]])
    return view.titled, INDENT


def character(view: MessageView, row: int, column: int, width: int, canvas: Canvas) -> int | None:
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
    content = piece.content.without_spans
    strips: Sequence[Strip] = canvas.draw(content, max(width - INDENT - 1, 1))
    lines = [0, *(at + 1 for at, character in enumerate(content.plain) if character == "\n")]
    rows, y = [], -1
    for strip in strips:
        x, y = offset(list(strip), y + 1)
        rows.append((lines[y] + x, strip.text))
    return rows
