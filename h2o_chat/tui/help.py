"""The help screen, made from the bindings and from the table of commands themselves."""

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Footer, Static

from h2o_chat.tui import slash
from h2o_chat.tui.theme import MUTED

KEY_CELLS = 22
COMMAND_CELLS = 30


class Help(ModalScreen[None]):
    """All keys and commands; any of the usual keys closes it.

    Args:
        places: what has bindings, each with a title.
    """

    DEFAULT_CSS = """
    Help { align: center middle; }
    Help #box {
        width: 90%; max-width: 100; height: 90%; padding: 0 1;
        border: round $border; border-title-color: $text; border-title-style: bold; background: $background;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,enter", "dismiss", "close", key_display="esc"),
        Binding("ctrl+c", "app.interrupt", show=False, priority=True),
    ]

    def __init__(self, places: Iterable[tuple[str, Widget | object]]) -> None:
        super().__init__()
        self._text = help_text(places)

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="box"):
            yield Static(self._text, markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#box").border_title = "help"
        self.query_one("#box").focus()


def help_text(places: Iterable[tuple[str, Widget | object]]) -> Content:
    """Keys by place, then the commands."""
    lines: list[Content] = []
    for title, place in places:
        rows = _keys(place)
        if rows:
            lines += [Content(""), Content.styled(title, "bold $primary"), *rows]
    lines += [Content(""), Content.styled("commands, typed into the prompt", "bold $primary")]
    for command in slash.COMMANDS:
        left = f"/{command.name} {command.arguments}".ljust(COMMAND_CELLS)
        lines.append(Content.assemble((left, "$accent"), command.help))
    lines += [
        Content(""),
        Content.styled(
            "// sends a text that begins with a slash; @file sends a text file along, @@ an @", MUTED
        ),
    ]
    return Content("\n").join(lines[1:])


def _keys(place: object) -> list[Content]:
    """What a widget binds itself, keys for the same thing on one line."""
    bound: dict[str, list[str]] = {}
    for binding in vars(type(place)).get("BINDINGS", ()):
        if isinstance(binding, Binding) and (binding.description or binding.tooltip):
            bound.setdefault(binding.tooltip or binding.description, []).extend(binding.key.split(","))
    for key, what in vars(type(place)).get("OWN_KEYS", {}).items():
        bound.setdefault(what, []).append(key)
    return [
        Content.assemble((", ".join(keys).ljust(KEY_CELLS), "$accent"), what) for what, keys in bound.items()
    ]
