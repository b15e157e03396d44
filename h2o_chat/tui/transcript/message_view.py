"""A message as it is drawn: a title with its hold gauge above a text, and an empty line below it."""

from bisect import bisect_right
from itertools import accumulate

from textual.content import Content
from textual.strip import Strip

from h2o_chat.base.safe import safe_text
from h2o_chat.chat.memory.tokens import Tokens
from h2o_chat.chat.templates.thinking import Thinking
from h2o_chat.tui.transcript.message_body import CARET, BodyPiece, Growing, fold_at, placed, plain, unfold_at
from h2o_chat.tui.widgets.theme import MUTED

THINKING = Thinking(("<think>", "</think>"))
"""How thoughts are told from answers where the template says nothing of them."""
INDENT = 2
"""Columns before the text; one column is left free behind it."""


class MessageView:
    """A message as it is drawn. No widget: a conversation of any length is one node.

    Args:
        kind: user, assistant, system, note, error, or loading, which has no title.
        name: of the speaker.
        body: the text; Markdown where it is an answer.
        index: in the conversation; None where it is no part of it.
        finish: how an answer ended.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        body: Content | str = "",
        index: int | None = None,
        finish: str | None = None,
    ) -> None:
        self.kind = kind
        self.index = index
        self.name = " ".join(safe_text(name).split())  # a title is one line
        self.source = "" if isinstance(body, Content) else body
        self.finish = finish
        self.hold: float | None = None
        """Share of caches that still hold it, averaged over its tokens."""
        self.marked = False
        self.pinned = False
        """Protected from eviction by the person."""
        self.remark = ""
        """An addition to its title: what was recalled for it."""
        self.branch: tuple[int, int] | None = None
        """(number, count) of the branches in its place."""
        self.growing: Growing | None = None
        """While it is being written."""
        self.tokens: Tokens | None = None
        """The tokens of its text, where they are known."""
        self.raw = False
        """Shown as the text of its tokens, if they are known."""
        self.folded = False
        self.kept_open = False
        """Somebody has unfolded it."""
        self.thinking = THINKING
        self.thought_shown = False
        self._written: list[BodyPiece] | None = None
        """The pieces of an answer as they were drawn while it was written."""
        self._room = 0  # the width for which it was drawn
        self.drawn = body if isinstance(body, Content) else None
        self._pieces: list[BodyPiece] | None = None
        self._layout: tuple[int, list[int]] = (0, [])
        """(width, row at which each piece begins, then the row behind them)."""
        self.drawn_title: tuple[object, Strip] | None = None
        """(key, strip) of the title, see `drawing.py`."""

    @property
    def plain(self) -> str:
        """The shown text, without styles."""
        return "".join(piece.content.plain + piece.joint for piece in self.pieces)

    @property
    def pieces(self) -> list[BodyPiece]:
        if self._pieces is None:
            self._pieces = placed(self._build())
        return self._pieces

    @property
    def thought(self) -> str | None:
        return self._divided()[0]

    @property
    def said(self) -> str:
        """Its text, without the thought before."""
        return self._divided()[1]

    def _divided(self, text: str | None = None) -> tuple[str | None, str]:
        """(the thought, the answer) of its text, or of a part of it; only an answer has thoughts."""
        text = self.source if text is None else text
        if self.kind != "assistant":
            return None, text
        return self.thinking.divide(text, self.growing is not None)

    @property
    def is_long(self) -> bool:
        return fold_at(self.source) < len(self.source)

    @property
    def folds(self) -> int:
        """Index of the first folded character of its source."""
        return fold_at(self.source) if self.folded and self.growing is None else len(self.source)

    @property
    def unfolds(self) -> int:
        """Index of the last paragraph, which the user's own text shows below its fold: mostly a question."""
        return unfold_at(self.source) if self.kind == "user" else len(self.source)

    def _build(self) -> list[BodyPiece]:
        if self.drawn is not None:
            return [BodyPiece(self.drawn)]
        end = self.folds
        if self.kind == "assistant" and not (self.raw and self.tokens is not None):
            pieces = self._answer(self.source[:end])
        else:
            pieces = self._plain_pieces(0, end)
        if end < len(self.source):
            pieces[-1].joint = "\n"
            below = self.unfolds < len(self.source)
            pieces.append(BodyPiece(Content("…"), "\n" if below else "", fold=True))
            pieces += self._plain_pieces(self.unfolds, len(self.source)) if below else []
        return pieces

    def _plain_pieces(self, begin: int, end: int) -> list[BodyPiece]:
        if not self.raw or self.tokens is None:
            return plain(self.source[begin:end])
        own = self.tokens.own(self.source)
        last = Content(CARET) if self.growing else finish_line(self.finish)
        first = min(own.start + begin, own.stop)
        pieces = plain(self.tokens.text[first : min(own.start + end, own.stop)], first)
        if self.growing:  # behind the last word: a piece of its own would have a row of its own
            pieces[-1].content += last
        elif last and end == len(self.source):
            pieces[-1].joint = "\n"
            pieces.append(BodyPiece(last))
        return pieces

    def _answer(self, source: str) -> list[BodyPiece]:
        thought, answer = self._divided(source)
        folded = len(source) < len(self.source)
        if self.growing:
            pieces = self.growing.pieces
        elif self._written is None or folded:
            whole = Growing(self._room)
            whole.close(answer, Content() if folded else finish_line(self.finish))
            pieces = whole.pieces
        else:
            pieces = self._written
        if thought is None:
            return pieces
        sign, does = ("▾", "folds it") if self.thought_shown else ("▸", "shows it")
        doing = "thought" if answer or self.growing is None else "thinking"
        line = f"{sign} {doing} · {len(thought.split()):,} words · a click {does}"
        head = Content.styled(line, f"italic {MUTED}")
        if self.thought_shown:
            head = Content.assemble(head, "\n", (safe_text(thought), f"italic {MUTED}"))
        return [BodyPiece(head, "\n\n"), *pieces]

    def write(self, text: str) -> None:
        assert self.growing is not None
        before = len(self._divided()[1])
        self.source += text
        if more := self._divided()[1][before:]:
            self.growing.write(more)
        self.changed()

    def close(self, finish: str, text: str | None) -> None:
        """End an answer, see `Growing.close`."""
        assert self.growing is not None
        self.finish = finish
        self.source = self.source if text is None else text
        answer = None if text is None else self._divided(text)[1]
        self.growing.close(answer, finish_line(finish))
        self._written, self.growing = self.growing.pieces, None
        self.changed()

    def changed(self) -> None:
        """Forget the layout: it shows something else."""
        self._pieces = None
        self._layout = (0, [])

    # Rows

    @property
    def titled(self) -> int:
        return int(self.kind != "loading")

    def rows(self, width: int) -> int:
        """Its height in this width; wraps what was not wrapped yet."""
        return self.starts(width)[-1] + 1

    def starts(self, width: int) -> list[int]:
        """The row at which each piece begins; then the row behind them."""
        if not self.known(width):
            self.make_room(width)
            heights = (piece.height(self._room) for piece in self.pieces)
            self._layout = (width, [*accumulate(heights, initial=self.titled)])
        return self._layout[1]

    def make_room(self, width: int) -> None:
        """Draws an answer again for another width, for which it has a table or was divided at rows."""
        room = max(width - INDENT - 1, 1)
        divided = self.growing is not None or self._written is not None
        again = room != self._room and self.kind == "assistant" and (divided or "|" in self.source)
        self._room = room
        if again:
            if self.growing is not None:
                self.growing = Growing(room)
                self.growing.write(self._divided()[1])
            self._written = self._pieces = None

    def guess(self, width: int) -> int:
        """Its height, roughly; exact where it is known already."""
        if self.known(width):
            return self.rows(width)
        return self.source.count("\n") + len(self.source) // max(width - INDENT - 1, 1) + 3

    def known(self, width: int) -> bool:
        return self._layout[0] == width

    def at(self, row: int, width: int) -> tuple[BodyPiece | None, int]:
        """The piece that a row shows, and its row in that; None for the title or the empty row."""
        starts = self.starts(width)
        if not starts[0] <= row < starts[-1]:
            return None, 0
        place = bisect_right(starts, row) - 1
        return self.pieces[place], row - starts[place]


FINISHES = {
    "stopped": "stopped here; what was said is kept",
    "length": "cut at the token limit",
    "error": "broken off by an error",
    "interrupted": "broken off: the program was killed here",
}


def finish_line(finish: str | None) -> Content:
    """A line below an answer; empty where that ended by itself."""
    return Content.styled(f"■ {FINISHES[finish]}", f"italic {MUTED}") if finish in FINISHES else Content()
