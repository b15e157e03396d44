"""The palette: commands, or themes, found by typing; Textual's own, with the look of the other dialogs."""

from collections.abc import Iterable
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.theme import ThemeProvider

from h2o_chat.tui.keys import Keys


class Palette(CommandPalette):
    """The list, and below it the line to type into; how it looks stands in `app.tcss`.

    Args:
        title: what is listed.
        placeholder: what may be typed.
        providers: who finds it; None lists the commands.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "escape", "back", key_display="esc"),
        Binding("ctrl+c", "app.interrupt", show=False, priority=True),
    ]

    def __init__(self, title: str, placeholder: str, providers: Iterable[Any] | None = None) -> None:
        # By this id Textual knows that a palette is open.
        super().__init__(id="--command-palette", placeholder=placeholder, providers=providers)
        self._title_shown = title

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield Keys()

    def on_mount(self) -> None:
        self.query_one("#--container").border_title = self._title_shown


def commands() -> Palette:
    """All commands."""
    return Palette("commands", "words of a command")


def themes() -> Palette:
    """All themes."""
    return Palette("themes", "a name", [ThemeProvider])
