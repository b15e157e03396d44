"""The conversation: what is finished is frozen, only the end of the message being written is drawn again."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size

from h2o_chat.events import Turn
from h2o_chat.tui import markdown
from h2o_chat.tui.safe import safe_text
from h2o_chat.tui.theme import MUTED
from h2o_chat.tui.turn import FINISHES, Part, TurnView

CARET = "▌"
LIVE_CHARS = 2_000
"""The most that is drawn again as an answer grows; what it costs does not depend on how long it is."""
SETTLED_CHARS = 10_000
"""What is settled is gathered in widgets of about this size: each costs a little whenever anything moves."""


class Transcript(VerticalScroll):
    """Follows the end of the text until the reader scrolls up, and again once back at the end."""

    DEFAULT_CSS = """
    Transcript {
        height: 1fr;
        scrollbar-size-vertical: 1;
        scrollbar-background: $background;
        scrollbar-color: $border;
    }
    """
    BORDER_TITLE = "chat"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "app.toggle_panel", "memory", show=False),
        Binding("up", "select(-1)", "your messages"),
        Binding("down", "select(1)", show=False),
        Binding("ctrl+up", "scroll_up", show=False),
        Binding("ctrl+down", "scroll_down", show=False),
    ]

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.selected: int | None = None
        """The message of the user that is marked."""
        self._turns: dict[int, TurnView] = {}
        self._answer: TurnView | None = None
        self._part: Part | None = None
        """The last part of the open answer, which shows `_source`."""
        self._above: Part | None = None
        """The part before it, which takes what is settled."""
        self._index = 0
        self._source = ""
        self._reopened = 0
        """Characters at the beginning of `_source` that only repeat how a code block was opened."""
        self._frozen = 0
        """Characters of the open answer that earlier parts show."""

    def watch_virtual_size(self, size: Size) -> None:
        # Textual 8.2.8 pushes a short text down to the bottom when anchored, so only a long one is.
        long = size.height > self.scrollable_content_region.height
        if long != self.is_anchored:
            self.anchor(long)

    def follow(self) -> None:
        """Go to the end and stay there, wherever the reader was."""
        if self.is_anchored:
            self.anchor()

    def message(
        self,
        role: str,
        name: str,
        text: str,
        index: int,
        finish: str | None = None,
        hold: float | None = None,
    ) -> None:
        """Add a finished message.

        Args:
            index: its place in the conversation.
            finish: how an answer ended.
            hold: how much of it is held, where that is known.
        """
        body = _ended(markdown.render(text), finish) if role == "assistant" else text
        self._turns[index] = self._add(TurnView(role, name, body))
        if hold is not None:
            self.show_message_hold(index, hold)

    @property
    def answering(self) -> int | None:
        """The place of the answer that is open, if one is."""
        return None if self._answer is None else self._index

    def clear(self) -> None:
        """Show nothing."""
        self.remove_children()
        self.selected = None
        self._turns.clear()
        self._part = self._above = self._answer = None

    def cut(self, index: int) -> None:
        """Take away message `index` and all that stands below it."""
        first = min((message for message in self._turns if message >= index), default=None)
        if first is None:
            return
        if self.selected is not None and self.selected >= index:
            self.select(None)
        children = list(self.children)
        self.remove_children(children[children.index(self._turns[first]) :])
        self._turns = {message: view for message, view in self._turns.items() if message < index}

    def select(self, index: int | None) -> None:
        """Mark a message; None marks none."""
        for message, wanted in ((self.selected, False), (index, True)):
            if message is not None and message in self._turns:
                self._turns[message].mark(wanted)
        self.selected = index if index in self._turns else None
        if self.selected is not None:
            self.scroll_to_widget(self._turns[self.selected], animate=False)

    def action_select(self, step: int) -> None:
        """Mark the next message of the user, up or down; below the last one none is marked."""
        own = [message for message, view in sorted(self._turns.items()) if view.kind == "user"]
        if not own:
            return
        at = own.index(self.selected) if self.selected in own else len(own)
        at = max(at + step, 0)
        self.select(own[at] if at < len(own) else None)
        if self.selected is None:
            self.scroll_end(animate=False)

    def open_answer(self, name: str, message: int) -> None:
        """Begin the message that `stream` continues; `message` is its place in the conversation."""
        self._index = message
        self._source, self._reopened, self._frozen = "", 0, 0
        self._above = None
        self._part = self._answer = self._add(TurnView("assistant", name, CARET))

    def stream(self, text: str) -> None:
        """Append to the open answer; only its last part is drawn again."""
        assert self._answer is not None
        self._turns[self._index] = self._answer  # from the first word on there is something to hold
        part = self._grow(text)
        part.update(Content.assemble(markdown.render(self._source), (CARET, "$accent")))

    def _grow(self, text: str) -> Part:
        """Append to the source of the last part, settling what is too long for one; returns the last part."""
        assert self._part is not None
        source = self._source + text
        while len(source) > LIVE_CHARS:
            cut = markdown.cut(source[:LIVE_CHARS])
            done = source[: cut.at]
            shown = markdown.render(done.removesuffix(" ") if cut.joint == " " else done)
            if self._above is None or self._above.settled_chars > SETTLED_CHARS:
                self._above, self._part = self._part, Part()
                self.mount(self._part)
            self._above.settle(shown, cut.joint)
            self._frozen += cut.at - self._reopened
            self._reopened = len(cut.reopen)
            source = cut.reopen + source[cut.at :]
        self._source = source
        return self._part

    def close_answer(self, finish: str, text: str | None = None) -> None:
        """Freeze the open answer, if there is one; say so if it did not end by itself.

        Args:
            finish: how it ended.
            text: all of it, where that is known; what was streamed may lack the last characters.
        """
        if self._answer is None:
            return
        rest = ""
        if text:
            self._turns[self._index] = self._answer  # it may have come in one piece
        if text is not None:
            rest = text[self._frozen :]
            self._source = self._source[: self._reopened]
        part = self._grow(rest)
        part.update(_ended(markdown.render(self._source), finish))
        self._part = self._above = self._answer = None

    def withdraw(self) -> None:
        """Take back the open answer and the message that it was to answer: neither was said."""
        assert self._answer is not None
        self._turns.pop(self._index - 1).remove()
        self._answer.remove()
        self._part = self._above = self._answer = None

    def show_message_hold(self, index: int, hold: float) -> None:
        """Write the gauge of one message, where that is known."""
        if index in self._turns:
            self._turns[index].show_hold(hold)

    def show_hold(self, turn: Turn) -> None:
        """Write every message's gauge; a message that is not mentioned has nothing left."""
        held = dict(turn.hold)
        for message, view in self._turns.items():
            view.show_hold(held.get(message, 0.0))

    def _add(self, view: TurnView) -> TurnView:
        self.mount(view)
        return view

    def note(self, text: str) -> None:
        """Say something that is no part of the conversation; an answer that has not begun comes after it."""
        unbegun = self._answer is not None and not self._source and not self._frozen
        self.mount(TurnView("note", "note", text), before=self._answer if unbegun else None)

    def notice(self, message: str, hint: str = "") -> None:
        """Say something that a person should know, though nothing failed."""
        self.note(f"{message}\n→ {hint}" if hint else message)

    def error(self, title: str, message: str, hint: str = "") -> None:
        """Say what went wrong and, after an arrow, what to do."""
        body = Content.assemble(safe_text(message), (f"\n→ {safe_text(hint)}" if hint else "", "bold"))
        self._add(TurnView("error", f"✗ error · {title}", body))


def _ended(shown: Content, finish: str | None) -> Content:
    """An answer, with what is said under one that did not end by itself."""
    if finish not in FINISHES:
        return shown
    mark = Content.styled(f"■ {FINISHES[finish]}", f"italic {MUTED}")
    return Content.assemble(shown, "\n" if shown else "", mark)
