"""Heat on the words: how much of each token is held."""

from collections.abc import Iterator
from math import ceil

from textual.content import Content, Span
from textual.selection import Selection
from textual.style import Style

from h2o_chat.base.glyphs import heads
from h2o_chat.chat.conversation.spans import tokens_read
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.chat.memory.tokens import Tokens
from h2o_chat.tui.transcript.find import Finder
from h2o_chat.tui.transcript.message_body import BodyPiece
from h2o_chat.tui.transcript.message_view import INDENT, MessageView

LEVELS = 8
GONE = "$gone strike"
"""Struck through and pale: evicted from every cache."""
KINDS = {"S": " bold underline", "H": " bold", "R": "", "·": ""}
"""Styles beside the colour: important tokens are bold, protected ones underlined too."""


class Heat:
    """The styles of the words, from the state of the cache."""

    def __init__(self) -> None:
        self.memory = CacheView()
        self.on = self.quiet = False
        """The words are marked; quiet: nothing is said of the memory beside the messages."""

    def level(self, position: int) -> int | None:
        """0 to 8; None for a token that the model has not read yet."""
        if position >= self.memory.seen or not self.on:
            return None
        return min(ceil(self.memory.hold.get(position, 0.0) * LEVELS - 1e-9), LEVELS)

    def style(self, position: int) -> str:
        """The style of a token's word."""
        level = self.level(position)
        if level is None:
            return ""
        if level == 0:
            return GONE
        kind = self.memory.kind(position)
        if kind == "R" and level == LEVELS:
            return ""  # new tokens are held by all: that needs no colour
        return f"$heat-{level} on $heat-ground-{level}{KINDS[kind]}"  # `theme.py` has the ramp

    def spans(self, tokens: Tokens, start: int, end: int) -> Iterator[Span]:
        """The styles from `start` on, counted from there; a character of several tokens takes the largest."""
        begun, stop, running = start, start, ""
        for first, last, positions in tokens.groups(start, end):
            style = self.style(max(positions, key=lambda position: self.level(position) or 0))
            if style != running:
                if running:
                    yield Span(begun - start, stop - start, running)
                begun, running = first, style
            stop = last
        if running:
            yield Span(begun - start, stop - start, running)

    def gauges(self) -> dict[int, float]:
        """Mean hold by message, for those whose tokens were read."""
        memory = self.memory
        total = dict.fromkeys((span.index for span in memory.spans), 0.0)
        for position, hold in memory.hold.items():
            if span := memory.span(position):
                total[span.index] += hold
        read = {span.index: tokens_read(span.tokens, memory.seen) for span in memory.spans}
        return {index: total[index] / count if count > 0 else 1.0 for index, count in read.items()}


CURSOR = "reverse bold underline"


def styled_piece(view: MessageView, piece: BodyPiece, heat: Heat, finder: Finder, width: int) -> Content:
    """A piece with the styles of the moment; its length and its rows stay the same."""
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
        content = finder.mark(view, piece.at, content)
    return content


def fold_line(view: MessageView, heat: Heat) -> str:
    """The line of a fold: how much is folded, and how much of that is held."""
    lines = view.source[view.folds : view.unfolds].strip("\n").count("\n") + 1
    what, held = f"{lines:,} line{'s' if lines > 1 else ''}", ""
    if view.tokens is not None:
        own = view.tokens.own(view.source)
        first = view.tokens.at(min(own.start + view.folds + 1, own.stop - 1))  # behind the last line's end
        last = view.tokens.at(min(own.start + view.unfolds, own.stop) - 1)
        if first is not None and last is not None:
            what = f"{last + 1 - first:,} tokens"
            memory = heat.memory
            read = range(first, min(last + 1, memory.seen))
            hold = sum(memory.hold.get(at, 0.0) for at in read) / len(read) if read else 1.0
            held = f" · {heads(hold, memory.caches)}"
    return f"… ⋮ {what} folded{held} · a click unfolds"


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
