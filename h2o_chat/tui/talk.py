"""Talking to a model: sending, going back, other conversations."""

from collections.abc import Callable, Iterator
from time import monotonic
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from h2o_chat.chat import Chat
from h2o_chat.config import Sampling
from h2o_chat.events import Said
from h2o_chat.tui.conversations import Conversations
from h2o_chat.tui.going_back import Editing, Sent
from h2o_chat.tui.pane import Pane
from h2o_chat.tui.prompt import PromptBox
from h2o_chat.tui.work import ChatLike, Jobs, Opened, Report

AGAIN_SECONDS = 4.0
"""A second press within this time means it."""


class TalkPane(Pane):
    """The pane with a prompt box.

    Args:
        sampling: how answers are made.
    """

    READING = "reading · esc stops"
    ANSWERING = "answering · esc stops"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", "give up"),
        Binding("ctrl+r", "regenerate", "again"),
        Binding("e", "edit", "edit"),
        # The box would go to the end of the line, which the end key does.
        Binding("ctrl+e", "edit_last", "edit last", priority=True, show=False),
        Binding("ctrl+n", "new", "new"),
        Binding("ctrl+o", "conversations", "open"),
    ]

    def __init__(self, jobs: Jobs, sampling: Sampling) -> None:
        super().__init__(jobs)
        self.prompt = PromptBox(self._send, id="prompt")
        self._sampling = sampling
        self._editing = Editing(self.prompt, self.transcript)
        self._sent = Sent()
        self._drawn: int | None = None
        """The message that was shown when enter was pressed, and is yet to be reported."""
        self._new_asked = float("-inf")

    def entry(self) -> list[Widget]:
        return [Static("❯", id="sign", markup=False), self.prompt]

    def on_mount(self) -> None:
        self.query_one("#entry").border_subtitle = "enter send · ctrl+j newline · esc stop"
        self.prompt.focus()

    @property
    def selected_text(self) -> str:
        return self.prompt.selected_text

    @property
    def _talk(self) -> Chat | None:
        """The conversation, while nothing is happening to it."""
        return self.chat if isinstance(self.chat, Chat) and not self.busy else None

    # What a job reports

    def opened(self, chat: ChatLike) -> None:
        super().opened(chat)
        self._sent.taken = True

    def said(self, said: Said) -> None:
        if said.index == self._drawn:
            self._drawn = None
            return
        super().said(said)
        if said.index == self._sent.edits and not self._sent.withdrawn:
            self._sent.taken = True

    def unsaid(self) -> None:
        super().unsaid()
        self._sent.taken, self._sent.withdrawn = False, True

    def done(self) -> None:
        super().done()
        self._drawn = None
        sent = self._sent
        if sent.taken:
            if self._editing.index is None:
                self._editing.bring_back()
            return
        if not sent.text:
            self.divider.say("nothing has changed")
            return
        if sent.edits is not None:
            self._edit(sent.edits, sent.text)
        elif not self.prompt.text:
            self.prompt.put(sent.text)
        else:
            self.divider.say("stopped · nothing was sent")
            return
        self.divider.say("stopped · nothing was sent · your text is back")

    # What the person does

    def _send(self, text: str) -> bool:
        """Send the text; or say why not, and it stays in the box."""
        talk = self._talk
        if talk is None:
            waiting = "no model is open" if self.failed else "still loading"
            answering = "still answering · esc stops it, then enter sends"
            self.divider.say(f"{waiting} · your text stays here" if self.chat is None else answering)
            return False
        index = self._editing.end()
        if index is None:
            self._say(talk, text)
        else:
            self._say_anew(talk, index, text)
        return True

    def _say(self, talk: Chat, text: str) -> None:
        index = len(talk.messages)
        self._sent = Sent(text, taken=True)
        self.said(Said(index, "user", text))
        self._drawn = index
        self.begin(lambda cancel, _: talk.send(text, self._sampling, cancel), self.READING)

    def _say_anew(self, talk: Chat, index: int, text: str) -> None:
        self._sent = Sent(text, index)
        self.begin(
            lambda cancel, progress: talk.edit(index, text, self._sampling, cancel, progress),
            "going back · esc stops",
        )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that would do nothing now are neither bound nor shown."""
        match action:
            case "give_up":
                return self._editing.index is not None and not self.busy
            case "edit":
                return self.transcript.has_focus and self._talk is not None
            case "regenerate" | "edit_last" | "new" | "conversations":
                return self._talk is not None
        return super().check_action(action, parameters)

    def action_give_up(self) -> None:
        """Leave the message as it was."""
        self._editing.give_up()
        self.divider.doing("")
        self.refresh_bindings()

    def action_regenerate(self) -> None:
        """Answer the last message once more."""
        if (talk := self._talk) is None or not self._can_go_back(talk):
            return
        self._editing.give_up()
        self._sent = Sent(edits=self._last_said(talk))
        self.begin(
            lambda cancel, progress: talk.regenerate(self._sampling, cancel, progress),
            "going back · esc stops",
        )

    def action_edit(self) -> None:
        """Put the marked message into the box, or the last one."""
        self._edit_message(self.transcript.selected)

    def action_edit_last(self) -> None:
        """Put the last message into the box."""
        self._edit_message(None)

    def _edit_message(self, index: int | None) -> None:
        if (talk := self._talk) is None or not self._can_go_back(talk):
            return
        index = self._last_said(talk) if index is None else index
        assert index is not None
        self._edit(index, talk.messages[index].text)

    def _edit(self, index: int, text: str) -> None:
        self._editing.begin(index, text)
        self.divider.doing("editing · enter sends this instead, esc gives up")
        self.refresh_bindings()

    def _can_go_back(self, talk: Chat) -> bool:
        """Whether there is anything to go back to; else it is said."""
        index = self._last_said(talk)
        if index is None:
            self.divider.say("nothing was said yet")
        elif talk.keeper is None or talk.messages[index].id is None:
            self.divider.say("this conversation is not stored: there is no going back")
            index = None
        return index is not None

    def _last_said(self, talk: Chat) -> int | None:
        own = [index for index, message in enumerate(talk.messages) if message.role == "user"]
        return own[-1] if own else None

    def action_new(self) -> None:
        """Begin another conversation."""
        if (talk := self._talk) is None:
            return
        now = monotonic()
        if talk.keeper is None and talk.messages and now - self._new_asked > AGAIN_SECONDS:
            self._new_asked = now
            self.divider.say("this conversation is not stored · ctrl+n again forgets it", AGAIN_SECONDS)
            return
        self._editing.give_up()
        self._sent = Sent()
        self.begin(lambda *_: _begin_anew(talk), "beginning anew")

    def action_conversations(self) -> None:
        """Show the stored conversations."""
        if (talk := self._talk) is None:
            return
        if talk.keeper is None:
            self.divider.say("conversations are not stored here: there are none to open")
            return
        screen = Conversations(talk.keeper.store, talk.keeper.conversation, talk.session.model)
        self.app.push_screen(screen, self._open)

    def _open(self, conversation: str | None) -> None:
        if conversation is None or (talk := self._talk) is None:
            return
        self._editing.give_up()
        self._sent = Sent()
        self.begin(
            lambda cancel, progress: _open_other(talk, conversation, cancel, progress),
            "opening · esc stops",
        )


def _begin_anew(talk: Chat) -> Iterator[Report]:
    talk.clear()
    yield Opened(talk)


def _open_other(
    talk: Chat, conversation: str, cancel: Callable[[], bool], progress: Callable[[float], None]
) -> Iterator[Report]:
    if talk.open(conversation, progress, cancel):
        yield Opened(talk)
