"""The help screen, made from the bindings and from the table of commands."""

import textwrap
from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.keys import key_to_character
from textual.screen import ModalScreen
from textual.widgets import Static

from h2o_chat.chat.commands import table
from h2o_chat.tui.widgets.key_bar import KeyBar
from h2o_chat.tui.widgets.theme import MUTED

KEY_CELLS = 22
COMMAND_CELLS = 30
LEAST_CELLS = 24
"""Columns that are enough for the right side."""
PANEL = (
    ("██████████▓▓▓▓▓░░", "the slots of the memory, by the reason why each is kept:"),
    ("█ important", "without it the model would say something else most (the paper's heavy hitters)"),
    ("▓ newest", "the last tokens, which are always kept (the paper's recent tokens)"),
    ("░ first, pinned", "the first tokens (sinks), the system prompt, what you pin: never forgotten"),
    ("still remembered", "words of long ago, and how many heads hold them"),
    ("a head", "one of the model's small memories: each decides alone what it keeps"),
    ("just forgotten", "what no head holds any more; the conversation on the left keeps it"),
    ("recalled #1", "the words of message 1 were read again, because a question needed them"),
)
PREFIXES = "@file sends a text, PDF or folder along, @@ an @; // sends a text that begins with a slash"


class Help(ModalScreen[None]):
    """All commands and the keys of some places (title, what has bindings); any usual key closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,enter", "dismiss", "close", key_display="esc"),
        Binding("ctrl+c", "app.interrupt", show=False, priority=True),
    ]

    def __init__(self, places: Iterable[tuple[str, object]], commands: bool) -> None:
        super().__init__()
        self._places, self._commands = list(places), commands

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="box") as box:
            box.border_title = "help"
            yield Static(markup=False)
        yield KeyBar()

    def on_resize(self) -> None:
        width = self.query_one("#box").scrollable_content_region.width
        self.query_one(Static).update(help_text(self._places, width, commands=self._commands))


def help_text(places: Iterable[tuple[str, object]], width: int, *, commands: bool = True) -> Content:
    """The memory panel, the commands, then keys by place, wrapped to a width."""
    parts = [("the memory panel", [_row(part, what, KEY_CELLS, width) for part, what in PANEL])]
    if commands:
        typed = [
            _row(f"/{one.name} {one.arguments}", one.help, COMMAND_CELLS, width)
            for one in table.commands("screen")
        ]
        parts.append(("commands, typed into the prompt", [Content.styled(PREFIXES, MUTED), *typed]))
    parts += [(title, rows) for title, place in places if (rows := _keys(place, width))]
    titled = [Content("\n").join([Content.styled(title, "bold $primary"), *rows]) for title, rows in parts]
    return Content("\n\n").join(titled)


def _keys(place: object, width: int) -> list[Content]:
    """The bindings of a widget's own classes, keys for the same action on one line."""
    bound: dict[str, list[str]] = {}
    for kind in (one for one in type(place).__mro__ if one.__module__.startswith("h2o_chat.")):
        for binding in vars(kind).get("BINDINGS", ()):
            if isinstance(binding, Binding) and (binding.description or binding.tooltip):
                keys = map(_as_typed, binding.key.split(","))
                bound.setdefault(binding.tooltip or binding.description, []).extend(keys)
        for key, what in vars(kind).get("OWN_KEYS", {}).items():
            bound.setdefault(what, []).append(key)
    return [_row(", ".join(keys), what, KEY_CELLS, width) for what, keys in bound.items()]


def _as_typed(key: str) -> str:
    """The character on the key: `[` for `left_square_bracket`."""
    character = key_to_character(key)
    return character if character and character.isprintable() and not character.isspace() else key


def _row(left: str, what: str, cells: int, width: int) -> Content:
    """A key or command with its explanation in a column of its own; below it where there is no room."""
    indent = cells if width - cells >= LEAST_CELLS else 4
    words = textwrap.wrap(what, max(width - indent, 1))
    if indent < cells or len(left) >= cells:
        words.insert(0, "")
    lines = "\n".join(" " * indent * (at > 0) + line for at, line in enumerate(words))
    return Content.assemble((left.ljust(indent), "$accent"), lines)
