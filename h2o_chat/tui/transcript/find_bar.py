"""The find bar, into which words to be found are typed."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Input, Static

from h2o_chat.tui.transcript.transcript import Transcript


class FindBar(Horizontal):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "back"),
        Binding("down,ctrl+f", "step(1)", "next", priority=True),
        Binding("up", "step(-1)", "before", priority=True),
    ]

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(id="find")
        self._transcript = transcript
        self._input = Input(placeholder="words in this conversation", select_on_focus=True)
        self._found = Static(id="found", markup=False)
        self._before: Widget | None = None

    def compose(self) -> ComposeResult:
        yield Static("find", id="find-label", markup=False)
        yield self._input
        yield self._found

    def open(self, words: str | None = None) -> None:
        """Ask for words, or look for these."""
        if self.has_class("-open") and words is None:
            self.action_step(1)
            return
        if not self.has_class("-open"):
            self._before = self.screen.focused
        self.add_class("-open")
        self.screen.set_focus(self._input)  # at once: what is typed next is for it
        if words is not None:
            self._input.value = words

    def action_close(self) -> None:
        """Unmark everything and give the keyboard back."""
        self.remove_class("-open")
        self._transcript.find("")
        self._found.update("")
        with self.prevent(Input.Changed):
            self._input.value = ""
        if self._before is not None:
            self._before.focus()

    def action_step(self, step: int) -> None:
        self._found.update(self._transcript.find(self._input.value, step))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        # Keys that came at once have come in one piece before: asked again, it would go on to the next place.
        if self._input.value != self._transcript.finder.words:
            self._found.update(self._transcript.find(self._input.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_step(-1)
