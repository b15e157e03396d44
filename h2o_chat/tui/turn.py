"""One message of the conversation: a title with its hold gauge above a text that can be selected.

A long one goes on in parts below, so that no single widget grows without end.
"""

from typing import Any

from textual.content import Content
from textual.events import Resize
from textual.selection import Selection
from textual.widgets import Static

from h2o_chat.tui.glyphs import gauge
from h2o_chat.tui.safe import fit, safe_text
from h2o_chat.tui.theme import MUTED

FINISHES = {
    "stopped": "stopped here; what was said is kept",
    "length": "cut at the token limit",
    "error": "broken off by an error",
    "interrupted": "broken off: the program was killed here",
}
"""What is said under an answer that did not end by itself."""


class Part(Static):
    """A piece of a message; selected with its neighbours, it reads as if they were one."""

    DEFAULT_CSS = """
    Part {
        height: auto;
        padding: 0 1 0 2;
        margin-bottom: 1;
        &.-joined { margin-bottom: 0; }
    }
    """

    def __init__(self, content: Content | str = "", **kwargs: Any) -> None:
        super().__init__(content, markup=False, **kwargs)
        self._settled = Content()
        self._joint = ""

    @property
    def settled_chars(self) -> int:
        """Characters shown for good."""
        return len(self._settled)

    def settle(self, content: Content, joint: str) -> None:
        """Show `content` for good, below what is settled already; after `joint` the message goes on."""
        self._settled = self._settled + self._joint + content
        self._joint = joint
        self.add_class("-joined")
        self.update(self._settled + joint[:-1])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        found = super().get_selection(selection)
        if found is None or selection.end is not None or not self.settled_chars:
            return found
        return found[0], self._joint


class TurnView(Part):
    """A message, or its first part: a single node, which is what keeps long conversations fast.

    The title lives in the top border, outside the text: it costs no node and is never copied with it.
    """

    DEFAULT_CSS = """
    TurnView {
        border-top: blank;
        border-title-align: left;
        border-title-style: bold;
        &.-user { border-title-color: $secondary; }
        &.-assistant { border-title-color: $primary; }
        &.-system { border-title-color: $text-muted; }
        &.-note { border-title-color: $text-muted; color: $text-muted; }
        &.-error { border-title-color: $error; }
        &.-marked { border-title-color: $accent; }
    }
    """

    def __init__(self, kind: str, name: str, body: Content | str = "", **kwargs: Any) -> None:
        shown = body if isinstance(body, Content) else Content(safe_text(body))
        super().__init__(shown, classes=f"-{kind}", **kwargs)
        self.kind = kind
        self._speaker = safe_text(name)
        self._marked = False
        self.hold: float | None = None

    def on_mount(self) -> None:
        self._write_title()

    def on_resize(self, event: Resize) -> None:
        self._write_title()

    def show_hold(self, hold: float) -> None:
        """Write the share of caches that still hold this message, averaged over its tokens."""
        if hold != self.hold:
            self.hold = hold
            self._write_title()

    def mark(self, on: bool) -> None:
        """Show that the keyboard has chosen this message, or no longer."""
        self._marked = on
        self.set_class(on, "-marked")
        self._write_title()

    def _write_title(self) -> None:
        right = "" if self.hold is None else gauge(self.hold)
        room = max(self.outer_size.width - 3, 0)
        speaker = f"▸ {self._speaker}" if self._marked else self._speaker
        name = fit(speaker, room - len(right)) if right else speaker
        title = Content.assemble(name, (right, f"not bold {MUTED}"))
        self.border_title = title
