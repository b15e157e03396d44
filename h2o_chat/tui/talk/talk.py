"""Talking to a model: sending, going back, other conversations."""

from collections.abc import Callable, Iterator
from time import monotonic
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Static

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import H2OChatError, UsageError
from h2o_chat.base.progress import Progress
from h2o_chat.chat.chat import Chat
from h2o_chat.events.events import Said
from h2o_chat.tui.pane import Pane
from h2o_chat.tui.panel.held import Memory
from h2o_chat.tui.talk import branches, changing, slash
from h2o_chat.tui.talk.attach import Reading, names_files
from h2o_chat.tui.talk.conversations import Conversations
from h2o_chat.tui.talk.going_back import Editing, Sent
from h2o_chat.tui.talk.history import History
from h2o_chat.tui.talk.menu import Menu
from h2o_chat.tui.talk.models import Models, rows
from h2o_chat.tui.talk.prompt import PromptBox
from h2o_chat.tui.talk.settings import Changed
from h2o_chat.tui.talk.settings import Settings as SettingsScreen
from h2o_chat.tui.work import ChatLike, Jobs, OpenChat, Opened, Report

STORE_S = 0.5
"""Between two tries to write what waits."""
AGAIN_SECONDS = 4.0
"""A second press within this time means it."""


class TalkPane(Pane):
    """The pane with a prompt box.

    Args:
        sampling: how answers are made.
        memory: what the events have told.
        history: what was typed before; None begins empty.
        opener_of: by a model's name, what opens it; None where there is only one.
    """

    READING = "reading · esc stops"
    ANSWERING = "answering · esc stops"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", "give up", tooltip="leave the message that is edited as it was"),
        Binding("ctrl+r", "regenerate", "again", priority=True, tooltip="answer the last message once more"),
        Binding("e", "edit", "edit", tooltip="say something else instead of the chosen message"),
        # The box would go to the end of the line, which the end key does.
        Binding(
            *("ctrl+e", "edit_last", "edit last"),
            priority=True,
            show=False,
            tooltip="say something else instead of your last message",
        ),
        Binding("b", "branch", "branch", show=False, tooltip="go to what was said there before, and back"),
        Binding("ctrl+n", "new", "new", priority=True, tooltip="begin another conversation"),
        Binding(
            *("ctrl+o", "conversations", "open"),
            priority=True,
            tooltip="stored conversations: find, open, rename, remove",
        ),
        Binding("f2", "settings", "settings", priority=True, show=False),
    ]

    def __init__(
        self,
        jobs: Jobs,
        sampling: Sampling,
        memory: Memory,
        history: History | None = None,
        opener_of: Callable[[str], OpenChat] | None = None,
    ) -> None:
        super().__init__(jobs)
        self.menu = Menu(id="menu")
        self.prompt: PromptBox = PromptBox(self._send, "prompt", self.menu, history)
        self.sampling = sampling
        self.memory = memory
        self._opener_of = opener_of
        self.pins_next = False
        """The next message is protected as it is sent."""
        self._waiting = ""
        """What was sent while the model was loading."""
        self._files: Reading | None = None
        """Of a message that is sent as soon as they are read."""
        self._editing = Editing(self.prompt, self.transcript)
        self._sent = Sent()
        self._drawn: int | None = None
        """The message that was shown when enter was pressed, and is yet to be reported."""
        self._new_asked = float("-inf")
        self._fork: int | None = None
        """The message from which on another branch is opened."""

    def entry(self) -> list[Widget]:
        return [Static("❯", id="sign", markup=False), self.prompt]

    def above_the_line(self) -> list[Widget]:
        return [self.menu]

    def on_mount(self) -> None:
        self._write_hint()
        self.prompt.focus()
        self.set_interval(STORE_S, self._look_at_the_store)

    @property
    def selected_text(self) -> str:
        return self.prompt.selected_text

    def idle(self) -> Chat:
        """The conversation, with which something can be done now.

        Raises:
            UsageError: there is none, or it is answering.
        """
        if (talk := self._talk) is None:
            raise UsageError("Not now: " + ("no model is open." if self.chat is None else "it is answering."))
        return talk

    def _write_hint(self) -> None:
        pinned = "the next message is pinned · " if self.pins_next else ""
        self.query_one("#entry").border_subtitle = f"{pinned}enter send · ctrl+j newline · esc stop"

    @property
    def _talk(self) -> Chat | None:
        """The conversation, while nothing is happening to it."""
        return self.chat if isinstance(self.chat, Chat) and not self.busy else None

    def _look_at_the_store(self) -> None:
        """While nothing goes on: what waits for another process that writes is tried again."""
        talk = self._talk
        if talk is not None and talk.keeper and talk.keeper.waiting:
            talk.keeper.flush()
            for note in talk.take_notes():
                self.noted(note)

    # What a job reports

    def opened(self, chat: ChatLike) -> None:
        super().opened(chat)
        self._give_back_files("")  # it was meant for what was open before
        self._sent.taken = True
        if self._waiting:
            text, self._waiting = self._waiting, ""
            self.call_after_refresh(self._send_waiting, text)

    def _show_pins(self) -> None:
        if isinstance(self.chat, Chat):
            self.transcript.messages.show_pins({n for n, one in enumerate(self.chat.messages) if one.pinned})

    def broke(self) -> None:
        super().broke()
        self._give_back_waiting()

    def _send_waiting(self, text: str) -> None:
        if not self._send(text) and not self.prompt.text:
            self.prompt.put(text)

    def _give_back_waiting(self) -> None:
        text, self._waiting = self._waiting, ""
        if text and not self.prompt.text:
            self.prompt.put(text)

    def said(self, said: Said) -> None:
        if said.index == self._drawn:
            self._drawn = None
            return
        super().said(said)
        if self._sent.edits in (said.index, None) and not self._sent.withdrawn:
            self._sent.taken = True

    def unsaid(self) -> None:
        super().unsaid()
        self._sent.taken, self._sent.withdrawn = False, True

    def done(self) -> None:
        super().done()
        self._show_pins()
        self._drawn = None
        sent, fork, self._fork = self._sent, self._fork, None
        if sent.taken:
            if fork is not None:
                self.transcript.select(fork)
            if sent.edits is not None:
                self.divider.say("what was said before is kept · /branch goes there")
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
        """Send the text, or do what it says; else say why not, and it stays in the box."""
        shown = len(self.transcript.messages.views)
        try:
            said = slash.parse(text)
            if not isinstance(said, str):
                command, words = said
                command.act(self, words)
                return True
        except H2OChatError as error:
            self.transcript.messages.error(error.code, error.message, error.hint)
            return False
        finally:
            if len(self.transcript.messages.views) > shown:  # an answer stands at the end: to be seen
                self.transcript.window.follow()
        talk = self._talk
        if talk is None and self.chat is None and not self.failed and not self._waiting:
            self._waiting = text
            self.divider.doing("sent as soon as the model is open")
            return True
        if talk is None or self._files:
            waiting = "no model is open" if self.failed else "still loading"
            going_on = "reading files" if self._files else "answering"
            still = f"still {going_on} · esc stops it, then enter sends"
            self.divider.say(f"{waiting} · your text stays here" if self.chat is None else still)
            return False
        if names_files(said):
            self._files = Reading(text, said)
            self.jobs.read(self._files)
            self.divider.doing("reading files · esc gives up")
            self.app.refresh_bindings()
        else:
            self._speak(talk, said)
        return True

    def _speak(self, talk: Chat, text: str) -> None:
        """Say it, or say it in the place of the message that is edited."""
        index = self._editing.end()
        if index is None:
            self._say(talk, text)
        else:
            self._say_anew(talk, index, text)

    def files_read(self, files: Reading) -> None:
        if files is not self._files:
            return  # nobody waits for it any more
        if files.error:
            self.transcript.messages.error(files.error.code, files.error.message, files.error.hint)
            self.transcript.window.follow()
            self._give_back_files("")
        elif (talk := self._talk) is None:
            self._give_back_files("something else goes on now · your text is back")
        else:
            self._files = None
            self._speak(talk, files.text)

    def _give_back_files(self, why: str) -> None:
        """A message whose files are not to be had stands in the box again, unless there is another by now."""
        files, self._files = self._files, None
        if files is None:
            return
        if not self.prompt.text:
            self.prompt.put(files.typed)
        if not self.busy:
            self.divider.doing("")
        self.divider.say(why)
        self.app.refresh_bindings()

    @property
    def stoppable(self) -> bool:
        return self._files is not None or super().stoppable

    def stop(self) -> None:
        if self._files is not None:
            self._give_back_files("stopped reading files · your text is back")
        else:
            super().stop()

    def _say(self, talk: Chat, text: str) -> None:
        index = len(talk.messages)
        pin, self.pins_next = self.pins_next, False
        self._sent = Sent(text, taken=not pin)  # so many tokens may not be protected: then nothing is said
        if not pin:
            self.said(Said(index, "user", text))
            self._drawn = index
        self._write_hint()
        self.begin(lambda cancel, _: talk.send(text, self.sampling, cancel, pin=pin), self.READING)

    def _say_anew(self, talk: Chat, index: int, text: str) -> None:
        self._sent = Sent(text, index)
        self.begin(
            lambda cancel, progress: talk.edit(index, text, self.sampling, cancel, progress),
            "going back · esc stops",
        )

    def choose(self, command: slash.Command) -> None:
        """From the palette: done at once, or begun in the prompt where something must be added."""
        required = command.arguments and not command.arguments.startswith("[")
        if required:
            self.prompt.put(f"/{command.name} ")
            self.prompt.focus()
        else:
            self._send(f"/{command.name}")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that would do nothing now are neither bound nor shown."""
        match action:
            case "give_up":
                return self._editing.index is not None and not self.stoppable
            case "edit" | "branch":
                return self.transcript.has_focus and self._talk is not None
            case "regenerate" | "edit_last" | "new" | "conversations" | "settings":
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
            lambda cancel, progress: talk.regenerate(self.sampling, cancel, progress),
            "going back · esc stops",
        )

    def action_edit(self) -> None:
        """Put the marked message into the box, or the last one."""
        chosen = self.transcript.selected
        if (
            chosen is not None
            and (view := self.transcript.messages.by_index.get(chosen))
            and view.kind != "user"
        ):
            self.divider.say("only what you said can be said anew · up and down choose that")
            return
        self.edit_message(chosen)

    def action_edit_last(self) -> None:
        """Put the last message into the box."""
        self.edit_message(None)

    def edit_message(self, index: int | None) -> None:
        if (talk := self._talk) is None or not self._can_go_back(talk):
            return
        index = self._last_said(talk) if index is None else index
        assert index is not None
        if not 0 <= index < len(talk.messages) or talk.messages[index].role != "user":
            raise UsageError(f"Message {index} is not one of yours.", "Only what you said can be said anew.")
        self._edit(index, talk.messages[index].text)

    def _edit(self, index: int, text: str) -> None:
        self.transcript.inspector.end()
        self._editing.begin(index, text)
        self.divider.doing("editing · enter sends this instead, esc gives up")
        self.refresh_bindings()

    def action_branch(self) -> None:
        """Go to the next branch at the marked message, or at the last one that has any."""
        try:
            self.go_to_branch(self.transcript.selected)
        except H2OChatError as error:
            self.transcript.messages.error(error.code, error.message, error.hint)

    def go_to_branch(self, index: int | None) -> None:
        """What was said in the place of a message before, or after it, with all that followed."""
        if (talk := self._talk) is None or not self._can_go_back(talk):
            return
        if index is not None and index >= len(talk.messages):
            raise UsageError(f"There is no message {index}.", f"They are 0 to {len(talk.messages) - 1}.")
        fork = branches.next_fork(talk, index)
        if fork is None:
            self.divider.say("nothing else was said here · e and ctrl+r begin a branch")
            return
        self._editing.give_up()
        self._sent = Sent()
        self._fork = fork.index
        self.begin(
            lambda cancel, progress: branches.go(talk, fork, cancel, progress), "going there · esc stops"
        )

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
        self.begin_anew()

    def begin_anew(self, system: str | None = None) -> None:
        """Another conversation, with another system prompt if one is given."""
        talk = self.idle()
        self._editing.give_up()
        self._sent = Sent()
        self.begin(lambda *_: _begin_anew(talk, system), "beginning anew")

    def pin_next(self, on: bool) -> None:
        """Protect the next message as it is sent, or do not."""
        self.pins_next = on
        self._write_hint()

    def pin(self, index: int, on: bool) -> None:
        """Protect a message, or let it go."""
        talk = self.idle()
        self._sent = Sent(taken=True)
        self.begin(lambda *_: talk.pin(index, on), "pinning")

    def open_model(self, name: str) -> None:
        """Begin a conversation with another model; this one stays open until that one is."""
        talk = None if self.failed else self.idle()
        if self._opener_of is None:
            raise UsageError("Other models cannot be opened here.")
        open_chat = self._opener_of(name)
        if talk is not None and talk.keeper:
            talk.keeper.leave()

        def instead(progress: Progress) -> ChatLike:
            other = open_chat(progress)
            if talk is not None:
                talk.close()
            return other

        self._editing.give_up()
        self._sent = Sent(taken=True)
        self.failed = False
        self.opening(name)
        self.start(lambda: self.jobs.load_instead(instead), f"opening {name} · esc stops")

    def choose_model(self) -> None:
        """Show what is here and what can be had."""
        from psutil import virtual_memory

        self.app.push_screen(Models(list(rows(virtual_memory().total))), self._open_chosen)

    def _open_chosen(self, name: str | None) -> None:
        if name:
            try:
                self.open_model(name)
            except H2OChatError as error:
                self.transcript.messages.error(error.code, error.message, error.hint)

    def action_settings(self) -> None:
        """Show the settings, to change them."""
        screen = SettingsScreen(
            changing.values(self),
            sorted(self.app.available_themes),
            self.app.theme,
            lambda new: changing.check(self, new),
        )
        self.app.push_screen(screen, self._set)

    def _set(self, changed: Changed | None) -> None:
        if changed is None:
            return
        if changed.theme:
            self.app.theme = changed.theme
        if changed.values:
            try:
                changing.change(self, changed.values)
            except H2OChatError as error:
                self.transcript.messages.error(error.code, error.message, error.hint)

    def rebuild(self, settings: Settings) -> None:
        """Build the memory again, as it is with these settings."""
        talk = self.idle()
        self._editing.give_up()
        self._sent = Sent()
        cost = f"reading {self.memory.seen:,} tokens again · esc stops"
        self.begin(lambda cancel, progress: _rebuild(talk, settings, cancel, progress), cost)

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


def _begin_anew(talk: Chat, system: str | None) -> Iterator[Report]:
    talk.clear(system)
    yield Opened(talk)


def _open_other(
    talk: Chat, conversation: str, cancel: Callable[[], bool], progress: Callable[[float], None]
) -> Iterator[Report]:
    if talk.open(conversation, progress, cancel):
        yield Opened(talk)


def _rebuild(
    talk: Chat, settings: Settings, cancel: Callable[[], bool], progress: Callable[[float], None]
) -> Iterator[Report]:
    if talk.rebuild(settings, progress, cancel):
        yield Opened(talk)
