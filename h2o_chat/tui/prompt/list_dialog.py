"""A dialog with a list, and a line below it: the line has the keyboard, the arrows move in the list."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

from h2o_chat.tui.widgets.key_bar import KeyBar, typed_ahead


class ListDialog(ModalScreen[str | None]):
    """Ends with what was chosen, or None.

    Args:
        title: of the box.
        label: before the line.
        placeholder: in the empty line.
        remark: between list and line.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        *(
            Binding(key, f"move('{action}')", show=False)
            for key, action in (
                *(("up", "cursor_up"), ("down", "cursor_down")),
                *(("pageup", "page_up"), ("pagedown", "page_down")),
            )
        ),
        Binding("ctrl+c", "app.interrupt", show=False, priority=True),
    ]

    def __init__(self, title: str, label: str, placeholder: str, remark: str = "") -> None:
        super().__init__()
        self._title_shown = title
        self._list = OptionList(markup=False)
        self._list.can_focus = False
        self._remark_line = Static(remark, id="remark", markup=False)
        self._label = Static(label, id="label", markup=False)
        self._input = Input(placeholder=placeholder, select_on_focus=False)

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = self._title_shown
            yield self._list
            yield self._remark_line
            with Horizontal(id="asking"):
                yield self._label
                yield self._input
        yield KeyBar()

    def on_mount(self) -> None:
        self.set_focus(self._input)

    def on_key(self, event: Key) -> None:
        """Type into the line before it has the keyboard."""
        typed_ahead(self._input, event)

    def action_move(self, how: str) -> None:
        getattr(self._list, f"action_{how}")()

    def action_back(self) -> None:
        self.dismiss(None)
