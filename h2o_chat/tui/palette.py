"""The palette: commands, or themes, found by typing; Textual's own, with the look of the other dialogs."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, ClassVar

from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.theme import ThemeProvider

from h2o_chat.chat.commands import table
from h2o_chat.tui.pane.pane import Pane
from h2o_chat.tui.prompt.talk_pane import TalkPane
from h2o_chat.tui.widgets.key_bar import KeyBar


class Palette(CommandPalette):
    """The list, and below it the line to type into; `app.tcss` has its look.

    Args:
        title: of the box.
        placeholder: of the line.
        providers: find the entries; None lists the commands.
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
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#--container").border_title = self._title_shown


def entries(app: App[None], pane: Pane) -> Iterator[SystemCommand]:
    """The entries of the palette: the slash commands; for a recording, its few actions."""
    if not isinstance(pane, TalkPane):
        yield SystemCommand("help", "the keys", partial(app.call_later, app.run_action, "help"))
        yield SystemCommand("theme", "other colours", app.action_change_theme)
        yield SystemCommand("quit", "leave", app.exit)
        return
    for command in table.commands("screen"):
        what = f"{command.arguments} · {command.help}" if command.arguments else command.help
        # The palette takes it for markup, in which [NUMBER] would vanish.
        yield SystemCommand(command.name, what.replace("[", "\\["), partial(choose, pane, command))


def choose(pane: TalkPane, command: table.Command) -> None:
    """Run a command, or begin it in the prompt where an argument is required."""
    required = command.arguments and not command.arguments.startswith("[")
    if required:
        pane.prompt.put_aside()
        pane.prompt.put(f"/{command.name} ")
        pane.prompt.focus()
    else:
        pane.submit(f"/{command.name}")


def show_commands(app: App[None]) -> None:
    """Show all commands, unless a palette is open."""
    if not isinstance(app.screen, Palette):
        app.push_screen(Palette("commands", "words of a command"))


def show_themes(app: App[None]) -> None:
    app.push_screen(Palette("themes", "a name", [ThemeProvider]))
