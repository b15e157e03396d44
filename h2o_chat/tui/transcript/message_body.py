"""The text of a message in pieces: each is wrapped and drawn alone, and kept until it changes.

So a message of any length costs as much to draw, and to lengthen, as what is seen of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from textual.content import Content
from textual.strip import Strip

from h2o_chat.base.safe import raw_text, safe_text
from h2o_chat.tui.transcript import markdown

LIVE_CHARS = 2_000
"""The most that is drawn again as a text grows; what it costs does not depend on how long it is."""
FEW_CHARS = 300
"""The same where the text can be cut sooner: between blocks, or rows without markup."""
SETTLED_CHARS = 3_000
"""A piece of running text that is settled goes on to about this size."""
CARET = "▌"
FOLD_ABOVE, FOLD_SHOWS = 24, 8
"""Lines that a text must have to be folded, and how many are shown then."""
FOLD_COLUMNS = 80
"""A longer line counts as several, whatever the width: what is folded does not change with that."""


@dataclass(eq=False)
class Piece:
    """Part of a text, drawn as one."""

    content: Content
    joint: str = ""
    """What stands between it and the next piece."""
    start: int = -1
    """Where it begins in the text of the message's tokens; -1 where it is not character for character."""
    x: int = 0
    """Of its first character in the line of the whole text that it begins in."""
    y: int = 0
    """The line of the whole text that it begins in."""
    fold: bool = False
    """This piece stands for the folded part; its line is written when it is drawn."""
    strips: Sequence[Strip] = field(default=(), repr=False)
    """Its rows, as they were drawn last."""
    key: object = None
    """The key they were drawn for: another key means they must be drawn again."""

    def height(self, width: int) -> int:
        """Rows, with the empty one below it if there is one."""
        return int(self.content.get_height({}, width)) + self.gap

    @property
    def gap(self) -> int:
        return int(self.joint.count("\n") > 1)


def placed(pieces: list[Piece]) -> list[Piece]:
    """The pieces, each told where it stands in the whole text."""
    x = y = 0
    for piece in pieces:
        piece.x, piece.y = x, y
        text = piece.content.plain + piece.joint
        breaks = text.count("\n")
        x = len(text) - text.rfind("\n") - 1 if breaks else x + len(text)
        y += breaks
    return pieces


def joined(pieces: Sequence[Piece]) -> Content:
    """The whole text."""
    parts: list[Content | str] = []
    for piece in pieces:
        parts += [piece.content, piece.joint]
    return Content.assemble(*parts)


def plain(text: str, start: int = -1) -> list[Piece]:
    """A text as it was typed, cut where lines end.

    Args:
        start: where it begins in the text of its message's tokens, if it is shown character for character.
    """
    show = safe_text if start < 0 else raw_text
    pieces, at = [], 0
    while len(text) - at > LIVE_CHARS:
        line = text.rfind("\n", at, at + LIVE_CHARS)
        word = text.rfind(" ", at, at + LIVE_CHARS)
        end, joint = (line, "\n") if line > at else (word, " ") if word > at else (at + LIVE_CHARS, "")
        pieces.append(Piece(Content(show(text[at:end])), joint, start if start < 0 else start + at))
        at = end + len(joint)
    return [*pieces, Piece(Content(show(text[at:])), "", start if start < 0 else start + at)]


def fold_at(text: str) -> int:
    """The character from which on a long text is folded; its end if it is not long."""
    if text.count("\n") + len(text) // FOLD_COLUMNS <= FOLD_ABOVE:
        return len(text)
    at = lines = 0
    while lines < FOLD_SHOWS:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        if end - at > (room := (FOLD_SHOWS - lines) * FOLD_COLUMNS):
            return max(text.rfind(" ", at, at + room), at + room // 2)
        lines += 1 + (end - at) // FOLD_COLUMNS
        at = end + 1
    return at - 1


class Growing:
    """Markdown that grows: what is settled stays as it is drawn, only the end is drawn again."""

    def __init__(self) -> None:
        self.pieces = [Piece(Content(CARET))]
        self.begun = False
        """Whether anything was written."""
        self._source = ""
        """What the last piece shows."""
        self._reopened = 0
        """Characters at the beginning of `_source` that only repeat how a code block was opened."""
        self._frozen = 0
        """Characters of the text that earlier pieces show."""
        self._blocks = 0
        """Code blocks that begin in earlier pieces."""
        self.room = 0
        """Columns in which it is drawn, where that is known: for tables."""

    def write(self, text: str, width: int = 0) -> None:
        """Append; the last piece ends in a caret.

        Args:
            width: in which it is drawn, where that is known.
        """
        self._grow(text)
        while len(self._source) > FEW_CHARS and (cut := markdown.early_cut(self._source, width)):
            self._cut(cut)
        self._show(Content.styled(CARET, "$accent"))

    def close(self, text: str | None, below: Content) -> None:
        """It is whole.

        Args:
            text: all of it, where that is known; what was written may lack the last characters.
            below: said on a line of its own.
        """
        rest = ""
        if text is not None:
            rest = text[self._frozen :]
            self._source = self._source[: self._reopened]
        self._grow(rest)
        shown = self._render(self._source)
        self._replace(Content.assemble(shown, "\n" if shown and below else "", below))

    def _show(self, end: Content) -> None:
        self._replace(Content.assemble(self._render(self._source), end))

    def _render(self, source: str) -> Content:
        return markdown.render(source, self.room, self._blocks, continues=self._in_code)

    @property
    def _in_code(self) -> bool:
        """The last piece begins within a code block."""
        return self._source[: self._reopened].startswith(("`", "~"))

    def _replace(self, content: Content) -> None:
        self.pieces[-1] = Piece(content)

    def _grow(self, text: str) -> None:
        """Append to the source of the last piece, settling what is too long for one."""
        self.begun = self.begun or bool(text)
        self._source += text
        while len(self._source) > LIVE_CHARS:
            self._cut(markdown.cut(self._source[:LIVE_CHARS]))

    def _cut(self, cut: markdown.Cut) -> None:
        done = self._source[: cut.at]
        shown = self._render(done.removesuffix(" ") if cut.joint == " " else done)
        self._settle(Piece(shown, cut.joint))
        self._blocks += len(markdown.code_blocks(done)) - self._in_code
        self._frozen += cut.at - self._reopened
        self._reopened = len(cut.reopen)
        self._source = cut.reopen + self._source[cut.at :]

    def _settle(self, piece: Piece) -> None:
        """Add a piece before the last one; words that run on stay in one."""
        above = self.pieces[-2] if len(self.pieces) > 1 else None
        if above and "\n" not in above.joint and len(above.content) < SETTLED_CHARS:
            piece = Piece(above.content + above.joint + piece.content, piece.joint)
            self.pieces.pop(-2)
        self.pieces.insert(-1, piece)


def whole(source: str, below: Content, room: int) -> list[Piece]:
    """A Markdown text that has ended.

    Args:
        below: said on a line of its own.
        room: columns in which it is drawn; 0 where that is not known yet.
    """
    text = Growing()
    text.room = room
    text.close(source, below)
    return text.pieces
