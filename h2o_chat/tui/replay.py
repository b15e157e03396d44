"""The pane of a recording: a transcript, and instead of the prompt a line that says so."""

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from h2o_chat.base.safe import safe_text
from h2o_chat.chat.commands.surface import ChatLike
from h2o_chat.tui.pane.jobs import Jobs
from h2o_chat.tui.pane.pane import Pane
from h2o_chat.tui.player import Player


class ReplayPane(Pane):
    """Plays a recording.

    Args:
        name: of the recording.
    """

    UNENDED = "interrupted"
    STOPS = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "pause", "pause")]

    def __init__(self, jobs: Jobs, player: Player, name: str) -> None:
        super().__init__(jobs)
        self._player = player
        self._name_shown = safe_text(name)
        self._line = Static(id="replaying", markup=False)

    def entry(self) -> list[Widget]:
        return [self._line]

    def on_mount(self) -> None:
        self.transcript.focus()
        self._say_where("·", "opening")

    def opened(self, chat: ChatLike) -> None:
        first = self.chat is None
        super().opened(chat)
        if first:
            self._say_where("▶", "space pauses")
            self.begin(self._player.play, "")

    def broke(self) -> None:
        super().broke()
        self._say_where("✗", "it cannot be shown")

    def done(self) -> None:
        super().done()
        self._say_where("■", "it has ended")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.busy if action == "pause" else super().check_action(action, parameters)

    def action_pause(self) -> None:
        self._player.pace.pause()
        paused = self._player.pace.paused
        self._say_where("‖" if paused else "▶", "paused, space goes on" if paused else "space pauses")

    def _say_where(self, sign: str, what: str) -> None:
        self._line.update(f"{sign} a recording · {what} · ctrl+q leaves · {self._name_shown}")
