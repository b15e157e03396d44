"""The choice in the transcript, by arrows or a click: a message, and maybe a token of it."""

from collections.abc import Callable

from h2o_chat.tui.transcript import markdown
from h2o_chat.tui.transcript.inspector import Inspector
from h2o_chat.tui.transcript.messages import Messages
from h2o_chat.tui.transcript.turn import TurnView
from h2o_chat.tui.transcript.window import Window


class MessageChoice:
    """While something is chosen single letters are commands; otherwise they are text for the prompt.

    Args:
        messages: one of which may be chosen.
        window: shows them.
        inspector: for their tokens.
        tell: called whenever the choice changes.
    """

    def __init__(
        self, messages: Messages, window: Window, inspector: Inspector, tell: Callable[[], object]
    ) -> None:
        self._messages, self._window, self._inspector, self._tell = messages, window, inspector, tell
        self._by_hand = False

    @property
    def view(self) -> TurnView | None:
        selected = self._messages.selected
        return self._messages.by_index[selected] if self._by_hand and selected is not None else None

    @property
    def on(self) -> bool:
        return self.view is not None

    def pick(self, index: int | None) -> None:
        """Choose a message; a missing one ends the choice."""
        self._messages.mark(index)
        self._by_hand = self._messages.selected is not None
        self._tell()

    def mark(self, index: int | None) -> None:
        """Mark a message without choosing it: letters stay text."""
        self._messages.mark(index)
        self._by_hand = False
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
        """Choose nothing any more."""
        if self._inspector.on or self._inspector.memory.cursor is not None:
            self._inspector.end()
        if self._by_hand:
            self.mark(None)

    def click(self, at: int, row: int, column: int) -> None:
        """Choose the clicked message and, where heat is shown, its token; unfold what is folded.

        Args:
            at: index among all views.
            row, column: in the whole transcript.
        """
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
        token = self._inspector.token_at(row, column) if self._messages.heat.on and self.on else None
        if token is None and self._inspector.on:
            self._inspector.end()
        self._inspector.pick(token)

    # Actions on it

    def fold(self) -> None:
        """Fold or unfold the message; where none is marked, the first long one that is visible."""
        view = self._messages.by_index.get(-1 if self._messages.selected is None else self._messages.selected)
        view = view or next((one for one in self._window.seen() if one.folded or one.is_long), None)
        if view is not None and view.is_long:
            self._fold(view)

    def _fold(self, view: TurnView) -> None:
        view.toggle_fold()
        self._window.changed(view)

    def show_thought(self) -> None:
        """Show the thought before an answer, or fold it away."""
        turns, selected = self._messages.by_index, self._messages.selected
        chosen = [turns[selected]] if selected in turns else reversed(self._window.seen())
        view = next((one for one in chosen if one.thought is not None), None)
        if view is not None:
            self._toggle_thought(view)

    def _toggle_thought(self, view: TurnView) -> None:
        view.thought_shown = not view.thought_shown
        self._window.changed(view)


def offers(view: TurnView, *, talks: bool) -> list[str]:
    """The number of a message, and the keys that act on it, the most wanted first.

    Args:
        talks: there is a prompt, so the conversation can be changed.
    """
    assert view.index is not None
    parts = [f"#{view.index + 1} chosen"]
    if talks and view.kind == "user":
        parts.append("e edit")
    parts.append("c copy")
    if talks:
        parts += ["p unpin" if view.pinned else "p pin", "b branch"]
    if markdown.code_blocks(view.said):
        parts.append("k code")
    if view.is_long:
        parts.append("z fold")
    if view.thought is not None:
        parts.append("t thought")
    return [*parts, "i words", "esc back"]
