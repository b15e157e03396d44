"""The line of keys at the bottom: only keys that fit completely."""

from typing import Any

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.events import Resize
from textual.screen import Screen
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

PADDING_CELLS = 3
"""Columns around a key and its name."""


class KeyBar(Footer):
    """Textual's footer, which would cut off the last key."""

    _room = 0
    _composed_of: list[Any] | None = None

    def bindings_changed(self, screen: Screen[Any]) -> None:
        """Composes it again only if other bindings are shown: that took a third of drawing."""
        if not (self.is_attached and screen is self.screen and self.app.app_focus):
            return super().bindings_changed(screen)
        bindings = [(one, enabled) for _, one, enabled, _ in screen.active_bindings.values() if one.show]
        if bindings != self._composed_of:
            self._composed_of = bindings
            super().bindings_changed(screen)

    def compose(self) -> ComposeResult:
        shown = [key for key in super().compose() if isinstance(key, FooterKey)]
        # The way to all other keys has room before any of them.
        helps = [key for key in shown if key.key == "f1"]
        left = self.app.size.width - sum(map(_cells, helps))
        for key in shown:
            left -= 0 if key in helps else _cells(key)
            if key in helps or left >= 0:
                yield key

    def on_resize(self, event: Resize) -> None:
        if event.size.width != self._room:
            self._room = event.size.width
            self.call_after_refresh(self.recompose)


def _cells(key: FooterKey) -> int:
    return cell_len(key.key_display) + cell_len(key.description) + PADDING_CELLS
