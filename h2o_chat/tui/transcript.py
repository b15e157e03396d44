"""The conversation: finished messages frozen, the one being written split so that only its end is redrawn."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static

from h2o_chat.events import Turn
from h2o_chat.tui import markdown
from h2o_chat.tui.safe import safe_text
from h2o_chat.tui.theme import MUTED
from h2o_chat.tui.turn import FINISHES, TurnView

CARET = "▌"


class Transcript(VerticalScroll):
    """Follows the end of the text until the reader scrolls up, and again once back at the end."""

    DEFAULT_CSS = """
    Transcript {
        height: 1fr;
        scrollbar-size-vertical: 1;
        scrollbar-background: $background;
        scrollbar-color: $border;
        & > .tail { padding: 0 1 0 2; margin-bottom: 1; }
    }
    """
    BORDER_TITLE = "chat"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("m", "app.toggle_panel", "memory", show=False)]

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self._turns: dict[int, TurnView] = {}
        self._answer: TurnView | None = None
        self._tail = Static(classes="tail", markup=False)
        self._index = 0
        self._raw = ""
        self._settled_chars = 0

    def watch_virtual_size(self, size: Size) -> None:
        # Textual 8.2.8 pushes a short text down to the bottom when anchored, so only a long one is.
        long = size.height > self.scrollable_content_region.height
        if long != self.is_anchored:
            self.anchor(long)

    def follow(self) -> None:
        """Go to the end and stay there, wherever the reader was."""
        if self.is_anchored:
            self.anchor()

    def message(self, role: str, name: str, text: str, index: int) -> None:
        """Add a finished message; `index` is its place in the conversation."""
        body = markdown.render(text) if role == "assistant" else text
        self._turns[index] = self._add(TurnView(role, name, body))

    def open_answer(self, name: str, message: int) -> None:
        """Begin the message that `stream` continues; `message` is its place in the conversation."""
        self._raw, self._settled_chars = "", 0
        self._index = message
        self._answer = self._add(TurnView("assistant", name))
        self._answer.add_class("-live", "-empty")
        self._tail.update(Content(CARET))
        self.mount(self._tail)

    def stream(self, text: str) -> None:
        """Append to the open answer; only blocks that can still change are drawn again."""
        assert self._answer is not None
        self._turns[self._index] = self._answer  # from the first word on there is something to hold
        self._raw += text
        tail = self._raw[self._settled_chars :]
        lines = markdown.settled(tail)
        if lines:
            self._settled_chars += sum(len(line) + 1 for line in tail.split("\n")[:lines])
            self._answer.update(markdown.render(self._raw[: self._settled_chars]) + "\n")
            self._answer.remove_class("-empty")
        end = markdown.render(self._raw[self._settled_chars :])
        self._tail.update(Content.assemble(end, (CARET, "$accent")))

    def close_answer(self, finish: str, text: str | None = None) -> None:
        """Freeze the open answer, if there is one, into one widget; say so if it did not end by itself.

        Args:
            finish: how it ended.
            text: all of it, where that is known; what was streamed may lack the last characters.
        """
        if self._answer is None:
            return
        shown = markdown.render(self._raw if text is None else text)
        if finish in FINISHES:
            mark = Content.styled(f"■ {FINISHES[finish]}", f"italic {MUTED}")
            shown = Content.assemble(shown, "\n" if shown else "", mark)
        self._answer.update(shown)
        self._answer.remove_class("-live", "-empty")
        self._answer = None
        self._tail.remove()
        self._tail = Static(classes="tail", markup=False)

    def show_hold(self, turn: Turn) -> None:
        """Write every message's gauge; a message that is not mentioned has nothing left."""
        held = dict(turn.hold)
        for message, view in self._turns.items():
            view.show_hold(held.get(message, 0.0))

    def _add(self, view: TurnView) -> TurnView:
        self.mount(view)
        return view

    def note(self, text: str) -> None:
        """Say something that is no part of the conversation."""
        self._add(TurnView("note", "note", text))

    def error(self, title: str, message: str, hint: str = "") -> None:
        """Say what went wrong and, after an arrow, what to do."""
        body = Content.assemble(safe_text(message), (f"\n→ {safe_text(hint)}" if hint else "", "bold"))
        self._add(TurnView("error", f"✗ error · {title}", body))
