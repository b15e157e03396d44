"""The choice in the transcript, by arrows or a click: a message, and maybe a token of it."""

from collections.abc import Callable
from dataclasses import dataclass

from textual.message import Message

from h2o_chat.base.glyphs import NAMES, heads
from h2o_chat.base.safe import safe_text, token_label
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.chat.memory.in_words import since
from h2o_chat.tui.transcript import markdown
from h2o_chat.tui.transcript.drawing import Canvas, character, shows, spot
from h2o_chat.tui.transcript.message_view import MessageView
from h2o_chat.tui.transcript.messages import Messages
from h2o_chat.tui.transcript.window import Window

FARTHEST = 4096
"""Tokens that are passed over to find the next visible one."""


@dataclass
class Pointed(Message):
    """The cursor moves to a token, or away: the app sets `CacheView.cursor` and has all drawn again.

    With `follow` the transcript goes to the token's message.
    """

    position: int | None
    follow: bool = False


class Inspector:
    """Moves the cursor over the tokens: `point` sets `CacheView.cursor`, or removes it by None."""

    def __init__(
        self, messages: Messages, window: Window, canvas: Canvas, point: Callable[[int | None], object]
    ) -> None:
        self._messages, self._window, self._canvas, self._tell = messages, window, canvas, point
        self.memory = messages.heat.memory
        self.on = False
        """The arrows move the cursor."""

    def begin(self, chosen: MessageView | None = None) -> None:
        """Show the cursor at the last token of a message or, where that has none, the last visible one."""
        seen = self._window.seen() + ([chosen] if chosen else [])
        ends = [view.tokens.first + len(view.tokens) - 1 for view in reversed(seen) if view.tokens]
        self.pick(next((at for end in ends if (at := self._shown(end, -1)) is not None), None))

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
        found = (self.token_at(row + step * away, column) for away in range(1, 64))  # over titles, empty rows
        self._point(next((position for position in found if position is not None), None))

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

    def view_of(self, position: int) -> MessageView | None:
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
        return page.start_of(view) + row, column

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
            self._window.go_to(view, place[0] - self._window.page.start_of(view))


def facts(memory: CacheView, view: MessageView, position: int) -> str:
    """A line about a token: its word, where it was said, which heads hold it and why."""
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


class MessageChoice:
    """While something is chosen letters are commands, else text for the prompt; `tell` hears of changes."""

    def __init__(
        self, messages: Messages, window: Window, inspector: Inspector, tell: Callable[[], object]
    ) -> None:
        self._messages, self._window, self._inspector, self._tell = messages, window, inspector, tell
        self._by_hand = False

    @property
    def view(self) -> MessageView | None:
        selected = self._messages.selected
        return self._messages.by_index.get(selected) if self._by_hand and selected is not None else None

    def pick(self, index: int | None, *, by_hand: bool = True) -> None:
        """Choose a message, or mark it alone: then letters stay text. A missing one ends the choice."""
        self._messages.mark(index)
        self._by_hand = by_hand and self._messages.selected is not None
        self._tell()

    def step(self, step: int) -> None:
        there = sorted(self._messages.by_index)
        if not there:
            return
        selected = self._messages.selected
        at = there.index(selected) if selected in there else len(there)
        at = max(at + step, 0)
        self.pick(there[at] if at < len(there) else None)

    def end(self) -> None:
        if self._inspector.on or self._inspector.memory.cursor is not None:
            self._inspector.end()
        if self._by_hand:
            self.pick(None)

    def click(self, at: int, row: int, column: int) -> None:
        """Choose view `at` and, where heat is shown, the token in a row and column of the whole transcript;
        unfold what is folded."""
        page = self._window.page
        view = page.views[at]
        piece, line = view.at(row - page.starts[at], page.width)
        if piece is not None and piece.fold:
            self._fold(view)
            return
        if piece is view.pieces[0] and line == 0 and view.thought is not None and piece.start < 0:
            self._toggle_thought(view)
            return
        self.pick(view.index)  # a note has none: there is nothing to do with it
        token = self._inspector.token_at(row, column) if self._messages.heat.on and self.view else None
        if token is None and self._inspector.on:
            self._inspector.end()
        self._inspector.pick(token)

    # Actions on it

    def fold(self) -> None:
        """Fold or unfold the message; where none is marked, the first long one that is visible."""
        view = next((one for one in self._marked_or(self._window.seen()) if one.is_long), None)
        if view is not None:
            self._fold(view)

    def _fold(self, view: MessageView) -> None:
        view.folded = not view.folded
        view.kept_open = not view.folded
        self._messages.changed(view)

    def show_thought(self) -> None:
        """Show the thought before an answer, or fold it away."""
        seen = self._marked_or(self._window.seen()[::-1])
        view = next((one for one in seen if one.thought is not None), None)
        if view is not None:
            self._toggle_thought(view)

    def _marked_or(self, others: list[MessageView]) -> list[MessageView]:
        there, selected = self._messages.by_index, self._messages.selected
        return [there[selected]] if selected in there else others

    def _toggle_thought(self, view: MessageView) -> None:
        view.thought_shown = not view.thought_shown
        self._messages.changed(view)


def offers(view: MessageView, *, talks: bool) -> list[str]:
    """The number of a message, and the keys that act on it, the most wanted first; `talks`: in a chat."""
    assert view.index is not None
    parts = [f"#{view.index + 1} chosen"]
    if talks and view.kind == "user":
        parts.append("e edit")
    parts.append("c copy")
    if markdown.code_blocks(view.said):
        parts.append("k copy code")
    if talks:
        parts += ["p unpin" if view.pinned else "p pin", "b branch"]
    if view.is_long:
        parts.append("z fold")
    if view.thought is not None:
        parts.append("t thought")
    return [*parts, "i words", "esc back"]
