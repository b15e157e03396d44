"""The prompt box: several lines, sent with enter."""

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import TextArea

from h2o_chat.tui.safe import safe_text

KEYS = ("enter", "shift+enter", "ctrl+j")
"""Sends, and two ways to a new line: shift+enter does not reach every terminal."""


class PromptBox(TextArea):
    """Grows with what is typed up to a third of the screen. Keeps a text that was refused."""

    DEFAULT_CSS = """
    PromptBox, PromptBox:focus {
        height: auto;
        min-height: 1;
        max-height: 8;
        border: none;
        padding: 0 1;
        background: transparent;
        scrollbar-size-vertical: 1;
        & .text-area--cursor-line { background: transparent; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        # The app's own meaning of ctrl+c comes first: here it copied.
        Binding("ctrl+c", "app.interrupt", show=False),
    ]

    def __init__(self, send: Callable[[str], bool], id: str) -> None:
        """
        Args:
            send: takes a text that is more than blanks, and says whether it was taken.
            id: of the widget.
        """
        super().__init__(
            id=id,
            soft_wrap=True,
            show_line_numbers=False,
            tab_behavior="focus",
            highlight_cursor_line=False,
            placeholder="ask something",
        )
        self._send = send

    def put(self, text: str) -> None:
        """Show this text instead of what stands there, and go to its end."""
        self.text = text
        self.move_cursor(self.document.end)

    async def _on_key(self, event: events.Key) -> None:
        # Not bindings: those run ahead of the keys typed just before, and a message to the app behind the
        # keys typed just after, so fast typing would send half a text or lose the next one's beginning.
        if event.key not in KEYS:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        if event.key != "enter":
            self.insert("\n")
        elif self.text.strip() and self._send(self.text):
            self.clear()

    async def _on_paste(self, event: events.Paste) -> None:
        # A pasted escape sequence must reach neither the terminal nor, unseen, the model; and terminals
        # send the line breaks of a paste as carriage returns. Textual calls the inherited method, which
        # inserts the text, by itself.
        event.text = safe_text(event.text.replace("\r\n", "\n").replace("\r", "\n"))
