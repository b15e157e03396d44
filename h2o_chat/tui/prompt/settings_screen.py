"""The dialog of settings: a field with its check for each; all changes hold from one key on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Select, Static

from h2o_chat.base.errors import H2OChatError
from h2o_chat.chat.commands import settable
from h2o_chat.chat.conversation.going_back import REBUILDING
from h2o_chat.tui.widgets.key_bar import KeyBar

GROUPS = {
    "answers · from the next one on": (*settable.ANSWERING, "seed", "recall", "think"),
    "memory · built again from what was said": REBUILDING,
    "screen": ("theme",),
}
HELP = {name: meaning for name, (meaning, _) in settable.HELP.items()} | {"theme": "colours of the screen"}
NARROW = 100
"""On fewer columns the remark of a field stands below it, and only errors are shown."""


class OneOf(Select[str], inherit_bindings=False):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "show_overlay", "choose")]


@dataclass(frozen=True)
class Changed:
    values: dict[str, Any]
    theme: str | None


class SettingsScreen(ModalScreen[Changed | None]):
    """Ends with the changes, or None; `check` raises where changed values cannot hold together."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-wide")]  # noqa: RUF012  (Screen has it so)
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "apply", "apply", priority=True),
        Binding("escape", "dismiss", "leave all as it was", key_display="esc"),
        Binding("up", "app.focus_previous", show=False),
        Binding("down", "app.focus_next", show=False),
        Binding("ctrl+c", "app.interrupt", show=False, priority=True),
    ]

    def __init__(
        self, values: dict[str, Any], themes: list[str], theme: str, check: Callable[[dict[str, Any]], None]
    ) -> None:
        super().__init__()
        self._before = {name: settable.typed(value) for name, value in values.items()} | {"theme": theme}
        self._choices = settable.CHOICES | {"theme": tuple(themes)}
        self._check = check

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box, VerticalScroll(can_focus=False):
            box.border_title = "settings"
            for title, names in GROUPS.items():
                yield Static(title, classes="group", markup=False)
                for name in names:
                    with Horizontal(classes="setting"):
                        yield Static(name, classes="name", markup=False)
                        yield self._field(name)
                        yield Static(HELP[name], id=f"remark-{name}", classes="remark", markup=False)
        yield KeyBar()

    def _field(self, name: str) -> Widget:
        value = self._before[name]
        if name not in self._choices:
            return Input(value, id=name, placeholder="none" if name in (*settable.OPTIONAL, "stop") else "")
        # A policy to compare with is no choice, unless it is the one that is on.
        choices = [(one, one) for one in dict.fromkeys((*self._choices[name], value))]
        return OneOf(choices, value=value, allow_blank=False, id=name, compact=True)

    # The fields

    def _typed(self, name: str) -> str:
        field = self.query_one(f"#{name}")
        assert isinstance(field, Input | OneOf)
        return str(field.value).strip()

    def _read(self, name: str) -> dict[str, Any]:
        """The value of a field by its name, if it was changed; a wrong one is told beside it."""
        new, error = {}, None
        try:
            if name in settable.SETTABLE and (typed := self._typed(name)) != self._before[name]:
                new[name] = settable.read(name, typed)
        except H2OChatError as wrong:
            error = wrong
        self._tell(name, error)
        return new

    def _tell(self, name: str, error: H2OChatError | None) -> None:
        """Show the error of a field, or its help."""
        remark = self.query_one(f"#remark-{name}", Static)
        remark.set_class(error is not None, "-wrong")
        remark.update(HELP[name] if error is None else f"✗ {error.message} {error.hint}".strip())

    @on(Input.Changed)
    @on(Select.Changed)
    def _changed(self, event: Input.Changed | Select.Changed) -> None:
        assert event.control.id is not None
        self._read(event.control.id)

    # Keys

    @on(Input.Submitted)
    def action_apply(self) -> None:
        new = {name: value for field in settable.SETTABLE for name, value in self._read(field).items()}
        if not self.query(".remark.-wrong"):
            try:
                self._check(new)
            except H2OChatError as error:
                first = next(name for name in REBUILDING if name in new)
                self._tell("budget" if "budget" in new else first, error)
        if wrong := next(iter(self.query(".remark.-wrong")), None):
            assert wrong.parent is not None
            wrong.parent.query("Input, OneOf").first().focus()
            return
        theme = self._typed("theme")
        self.dismiss(Changed(new, theme if theme != self._before["theme"] else None))
