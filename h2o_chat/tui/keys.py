"""The line of keys at the bottom: those that have room, and none of them in part."""

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.events import Resize
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

PADDING_CELLS = 3
"""Around a key and its name."""


class Keys(Footer):
    """Textual's footer, which would cut off the last key, or hide it under that of the palette."""

    _room = 0

    def compose(self) -> ComposeResult:
        shown = [key for key in super().compose() if isinstance(key, FooterKey)]
        docked = [key for key in shown if key.has_class("-command-palette")]
        left = self.app.size.width - sum(_cells(key) + 2 for key in docked)
        for key in shown:
            left -= 0 if key in docked else _cells(key)
            if key in docked or left >= 0:
                yield key

    def on_resize(self, event: Resize) -> None:
        """More keys have room, or fewer."""
        if event.size.width != self._room:
            self._room = event.size.width
            self.call_after_refresh(self.recompose)


def _cells(key: FooterKey) -> int:
    return cell_len(key.key_display) + cell_len(key.description) + PADDING_CELLS
