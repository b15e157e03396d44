"""The inspector: the cursor on a token, moved with the arrows or the mouse, and a line about the token."""

from collections.abc import Callable

from h2o_chat.base.glyphs import NAMES, heads
from h2o_chat.base.safe import safe_text, token_label
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.chat.memory.in_words import since
from h2o_chat.tui.transcript.drawing import Canvas, character, shows, spot
from h2o_chat.tui.transcript.messages import Messages
from h2o_chat.tui.transcript.turn import TurnView
from h2o_chat.tui.transcript.window import Window

FARTHEST = 4096
"""Tokens that are passed over to find the next visible one."""


class Inspector:
    """Moves the cursor over the tokens; its position is `CacheView.cursor`.

    Args:
        messages: that have the tokens.
        window: follows the cursor.
        canvas: draws the messages.
        point: sets the cursor; None removes it.
    """

    def __init__(
        self, messages: Messages, window: Window, canvas: Canvas, point: Callable[[int | None], object]
    ) -> None:
        self._messages, self._window, self._canvas, self._tell = messages, window, canvas, point
        self.on = False
        """Whether the arrows move the cursor."""

    @property
    def memory(self) -> CacheView:
        return self._messages.heat.memory

    def begin(self, chosen: TurnView | None = None) -> bool:
        """Show the cursor at the last token of a message or, where that has none, the last visible one.

        Returns:
            False where no token is visible.
        """
        seen = [view for view in (*self._window.seen(), chosen) if view is not None and view.tokens]
        ends = [view.tokens.first + len(view.tokens) - 1 for view in reversed(seen) if view.tokens]
        start = next((at for end in ends if (at := self._shown(end, -1)) is not None), None)
        self.on = start is not None
        if start is not None:
            self._point(start)
        return self.on

    def end(self) -> None:
        self.on = False
        self._tell(None)

    def step(self, step: int) -> None:
        if self.memory.cursor is not None:
            self._point(self._shown(self.memory.cursor + step, step))

    def line(self, step: int) -> None:
        """Move to the token in the row below, or above."""
        if self.memory.cursor is None or (place := self.place(self.memory.cursor)) is None:
            return
        row, column = place
        for away in range(1, 64):  # over titles and empty rows
            position = self.token_at(row + step * away, column)
            if position is not None:
                self._point(position)
                return

    def keep_in_sight(self) -> None:
        """Keep the token visible in a window of another size."""
        if self.on and self.memory.cursor is not None:
            self._go_to(self.memory.cursor)

    def pick(self, position: int | None) -> None:
        if position is not None:
            self.on = True
            self._point(position)

    def show_place(self, position: int) -> bool:
        """Scroll near the token's place in its message; False if that is not shown."""
        if (span := self.memory.span(position)) is None:
            return True  # it belongs to no message: there is nowhere to go
        if (view := self._messages.by_index.get(span.index)) is None:
            return False
        self._window.show_place(view, span.tokens.index(position) / len(span.tokens))
        return True

    # Where tokens are

    def view_of(self, position: int) -> TurnView | None:
        """The message of a token, if that is shown and its tokens are known."""
        span = self.memory.span(position)
        view = self._messages.by_index.get(span.index) if span else None
        return view if view is not None and view.tokens is not None else None

    def token_at(self, row: int, column: int) -> int | None:
        """Position of the token in a row and column of the whole transcript."""
        page = self._window.page
        at = page.at(row)
        if at is None or (view := page.views[at]).tokens is None:
            return None
        found = character(view, row - page.starts[at], column, page.width, self._canvas)
        return None if found is None else view.tokens.at(found)

    def place(self, position: int) -> tuple[int, int] | None:
        """(row, column) of a token in the whole transcript; None where it is not visible."""
        page, view = self._window.page, self.view_of(position)
        if view is None or view.tokens is None or not shows(view, position):
            return None
        span = view.tokens.span(position)
        assert span is not None
        row, column = spot(view, span[0], page.width, self._canvas, raw=True)
        at = page.views.index(view)
        page.changed(at)
        return page.starts[at] + row, column

    def _shown(self, position: int, step: int) -> int | None:
        for at in range(position, position + step * FARTHEST, step):
            view = self.view_of(at)
            if view is not None and shows(view, at):
                return at
        return None

    def _point(self, position: int | None) -> None:
        if position is None:
            return
        self._tell(position)
        self._go_to(position)

    def _go_to(self, position: int) -> None:
        place, view = self.place(position), self.view_of(position)
        if place is not None and view is not None:
            page = self._window.page
            self._window.go_to(view, place[0] - page.starts[page.views.index(view)])


def facts(memory: CacheView, view: TurnView, position: int) -> str:
    """A line about a token: its word, where it was said, which heads hold it and why.

    Scores and ranks are in the details of the memory panel.
    """
    piece = token_label(view.tokens.own_text(position) if view.tokens else "")
    word, span = memory.word(position), memory.span(position)
    parts = [f"“{safe_text(word.text)}”" if word else f"{piece} (no word)"]
    parts[0] += f" {numbered(span.index)}" if span else ""
    if position >= memory.seen:
        return f"{parts[0]} · not read yet · @{position:,}"
    hold = memory.hold_of(word) if word else memory.hold.get(position, 0.0)
    if hold:
        parts += [NAMES[memory.kind(position)], heads(hold, memory.caches)]
    else:
        went = memory.left(position)
        gone = f"forgotten by all {memory.caches:,} heads"
        parts.append(f"{gone} {since(memory, went.seen)}" if went else gone)
    own = memory.hold.get(position, 0.0)
    if word and len(word.tokens) > 1:
        if not hold and own:
            parts[1] = "forgotten as a whole"
        parts.append(f"its part “{piece}”: {memory.holders(own):,}")
    return " · ".join([*parts, f"@{position:,}"])
