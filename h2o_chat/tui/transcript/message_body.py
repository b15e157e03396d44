"""The text of a message in pieces: each is wrapped and drawn alone, and kept until it changes.

The cost of drawing or lengthening a message depends on its visible part, not on its length.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from textual.content import Content
from textual.strip import Strip

from h2o_chat.base.safe import raw_text, safe_text
from h2o_chat.tui.transcript import markdown

LIVE_CHARS = 2_000
"""Most characters that are drawn again as a text grows."""
FEW_CHARS = 300
"""Most of them where the text can be cut sooner: between blocks, or rows without markup."""
FINISHED_CHARS = 3_000
"""Finished pieces of running text grow to about this size."""
CARET = "▌"
FOLD_ABOVE, FOLD_SHOWS = 24, 8
"""Lines from which a text is folded, and lines that are shown then."""
FOLD_COLUMNS = 80
"""A longer line counts as several, in every width, so that the fold does not move with the width."""


@dataclass(eq=False)
class BodyPiece:
    content: Content
    joint: str = ""
    """Stands between it and the next piece."""
    start: int = -1
    """Index of its beginning in the text of the message's tokens; -1 where it differs from that text."""
    x: int = 0
    """Column of its first character, in the line of the whole text."""
    y: int = 0
    """Line of the whole text in which it begins."""
    at: int = 0
    """Index of its first character in the whole text."""
    fold: bool = False
    """This piece stands for the folded part; its line is written when it is drawn."""
    strips: Sequence[Strip] = field(default=(), repr=False)
    """Its rows, as they were drawn last."""
    key: object = None
    """The key they were drawn for; another key means drawing them again."""

    def height(self, width: int) -> int:
        """Number of rows, with the empty one below it if there is one."""
        return int(self.content.get_height({}, width)) + self.gap

    @property
    def gap(self) -> int:
        return int(self.joint.count("\n") > 1)


def placed(pieces: list[BodyPiece]) -> list[BodyPiece]:
    """The pieces with their places in the whole text."""
    x = y = at = 0
    for piece in pieces:
        piece.x, piece.y, piece.at = x, y, at
        text = piece.content.plain + piece.joint
        breaks = text.count("\n")
        x = len(text) - text.rfind("\n") - 1 if breaks else x + len(text)
        y += breaks
        at += len(text)
    return pieces


def plain(text: str, start: int = -1) -> list[BodyPiece]:
    """A typed text, cut at its lines; `start`: its index in the text of the tokens, if that is shown."""
    show = safe_text if start < 0 else raw_text
    pieces, at = [], 0
    while len(text) - at > LIVE_CHARS:
        line = text.rfind("\n", at, at + LIVE_CHARS)
        word = text.rfind(" ", at, at + LIVE_CHARS)
        end, joint = (line, "\n") if line > at else (word, " ") if word > at else (at + LIVE_CHARS, "")
        pieces.append(BodyPiece(Content(show(text[at:end])), joint, start if start < 0 else start + at))
        at = end + len(joint)
    return [*pieces, BodyPiece(Content(show(text[at:])), "", start if start < 0 else start + at)]


def fold_at(text: str) -> int:
    """The character from which a long text is folded; its end if it is not long."""
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


def unfold_at(text: str) -> int:
    """The character with which the last paragraph begins; the end of the text if that has many lines."""
    at = text.rstrip().rfind("\n\n") + 2
    few = text.count("\n", at) + (len(text) - at) // FOLD_COLUMNS < FOLD_SHOWS
    return at if at > 1 and few else len(text)


class Growing:
    """Growing Markdown: finished pieces stay as they are drawn, only the end is drawn again."""

    def __init__(self, room: int) -> None:
        """`room`: columns of a row; 0 where they are unknown."""
        self.pieces = [BodyPiece(Content(CARET))]
        self.room = room
        self._source = ""  # source of the last piece
        self._reopened = 0
        """Characters at the beginning of `_source` that only repeat how a code block was opened."""
        self._frozen = 0  # characters of the text in earlier pieces

    def write(self, text: str) -> None:
        self._grow(text)
        while len(self._source) > FEW_CHARS and (cut := markdown.early_cut(self._source, self.room)):
            self._cut(cut)
        shown = markdown.render(self._source, self.room)
        self.pieces[-1] = BodyPiece(Content.assemble(shown, (CARET, "$accent")))

    def close(self, text: str | None, below: Content) -> None:
        """End the text: `text` is all of it, if known (what was written may lack its end); `below` a line."""
        if text is not None:
            self._source = self._source[: self._reopened]
            self._grow(text[self._frozen :])
        shown = markdown.render(self._source, self.room)
        self.pieces[-1] = BodyPiece(Content.assemble(shown, "\n" if shown and below else "", below))

    def _grow(self, text: str) -> None:
        """Append to the source of the last piece; cut what is too long for one."""
        self._source += text
        while len(self._source) > LIVE_CHARS:
            self._cut(markdown.cut(self._source[:LIVE_CHARS]))

    def _cut(self, cut: markdown.Cut) -> None:
        done = self._source[: cut.at]
        shown = markdown.render(done.removesuffix(" ") if cut.joint == " " else done, self.room)
        above = self.pieces[-2] if len(self.pieces) > 1 else None
        if above and "\n" not in above.joint and len(above.content) < FINISHED_CHARS:  # running words
            self.pieces.pop(-2)
            shown = above.content + above.joint + shown
        self.pieces.insert(-1, BodyPiece(shown, cut.joint))
        self._frozen += cut.at - self._reopened
        self._reopened = len(cut.reopen)
        self._source = cut.reopen + self._source[cut.at :]
