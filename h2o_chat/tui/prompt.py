"""The prompt box: several lines, sent with enter."""

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from h2o_chat.tui.safe import safe_text


class PromptBox(TextArea):
    """Grows with what is typed up to a third of the screen. Clears itself only when told."""

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
        Binding("enter", "submit", "send", show=False, priority=True),
        Binding("shift+enter,ctrl+j", "newline", "newline", show=False, priority=True),
        # The app's own meaning of ctrl+c comes first: here it copied.
        Binding("ctrl+c", "app.interrupt", show=False),
    ]

    class Submitted(Message):
        """Enter was pressed on a text that is more than blanks."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, id: str) -> None:
        super().__init__(
            id=id,
            soft_wrap=True,
            show_line_numbers=False,
            tab_behavior="focus",
            highlight_cursor_line=False,
            placeholder="ask something",
        )

    def action_submit(self) -> None:
        if self.text.strip():
            self.post_message(self.Submitted(self.text))

    def action_newline(self) -> None:
        self.insert("\n")

    async def _on_paste(self, event: events.Paste) -> None:
        # A pasted escape sequence must reach neither the terminal nor, unseen, the model.
        event.text = safe_text(event.text)
        await super()._on_paste(event)
