"""Asks on the screen whether the model may call a tool."""

import json
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Literal

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Key, Mount
from textual.screen import ModalScreen
from textual.widgets import Static

from h2o_chat.base.progress import ShouldStop
from h2o_chat.base.safe import safe_text
from h2o_chat.chat.templates.tool_form import Call
from h2o_chat.chat.tools.tool_calls import SHOWN_CHARACTERS, cut
from h2o_chat.tui.widgets.key_bar import KeyBar

Answer = Literal["once", "always", "no"]
LOOK_S = 0.05
"""Between two looks whether the job was stopped."""
REST_S = 1.0
"""Time without a key before a letter answers: the question comes up while somebody types."""


class ToolQuestion(ModalScreen[Answer]):
    """Shows a call; ends with the answer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss('once')", "yes"),
        Binding("a", "dismiss('always')", "always, until you leave"),
        Binding("n,escape", "dismiss('no')", "no", key_display="n"),
        Binding("ctrl+c", "app.interrupt", show=False, priority=True),
    ]

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call
        self._rests_since_s = 0.0
        """When it was shown, or when the newest key was pressed."""

    def compose(self) -> ComposeResult:
        arguments = cut(json.dumps(self._call.arguments, ensure_ascii=False, indent=1), SHOWN_CHARACTERS)
        with VerticalScroll(id="box") as box:
            box.border_title = f"may the model call {safe_text(self._call.name)}?"
            yield Static(safe_text(arguments), markup=False)
        yield KeyBar()

    def on_mount(self, event: Mount) -> None:
        self._rests_since_s = event.time

    def on_key(self, event: Key) -> None:
        """Keep a letter from the bindings where it was meant for the prompt."""
        before, self._rests_since_s = self._rests_since_s, event.time
        if event.is_printable and event.time < before + REST_S:
            event.stop()
            self.query_one("#box").border_subtitle = "you were typing: once more, after a second"


def ask_on_screen(app: App[Any], call: Call, cancel: ShouldStop) -> Answer:
    """Asks, and waits in the job's thread; a job that is stopped gets a no."""
    answered: SimpleQueue[Answer | None] = SimpleQueue()
    question = ToolQuestion(call)
    app.call_later(app.push_screen, question, answered.put)
    while not cancel():
        try:
            return answered.get(timeout=LOOK_S) or "no"
        except Empty:
            continue
    app.call_later(lambda: question.is_current and question.dismiss("no"))
    return "no"
