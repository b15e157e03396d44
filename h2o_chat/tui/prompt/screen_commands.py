"""Slash commands on the screen: `CommandPane` for those of the table, and those of the screen alone."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from textual.screen import ModalScreen

from h2o_chat.base.errors import H2OChatError, UsageError
from h2o_chat.base.progress import Progress
from h2o_chat.chat.commands import bodies, settable
from h2o_chat.chat.commands.surface import ChatLike, Job
from h2o_chat.chat.commands.table import commands
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.chat.conversation.opening import YES
from h2o_chat.events.events import Note
from h2o_chat.models.resolve import LocalModel, look_up
from h2o_chat.store import models_used
from h2o_chat.tui.prompt.dialogs import Conversations, Models, rows
from h2o_chat.tui.prompt.outbox import Outgoing, State
from h2o_chat.tui.prompt.settings_screen import Changed, SettingsScreen
from h2o_chat.tui.prompt.talk_pane import TalkPane
from h2o_chat.tui.transcript.markdown import code_blocks
from h2o_chat.tui.transcript.message_view import MessageView

Chosen = TypeVar("Chosen")


class CommandPane(TalkPane):
    """The pane with a prompt box, as commands use it: a `Surface`."""

    @property
    def selected(self) -> int | None:
        return self.transcript.selected

    def say(self, text: str) -> None:
        self.transcript.messages.note(text)

    def remark(self, text: str) -> None:
        self.divider.say(text)

    def note(self, note: Note) -> None:
        self.on_note(note)

    def run(
        self,
        job: Job,
        doing: str,
        *,
        edits: int | None = None,
        fork: int | None = None,
        keeps_messages: bool = False,
    ) -> None:
        chosen = self.transcript.letters  # before editing ends that
        if not keeps_messages:
            self.editing.give_up()
        state: State = "answering" if keeps_messages else "sent"
        self.current = Outgoing("", edits, state, fork=fork, chosen=chosen)
        self.begin(job, doing)

    def speak(self, text: str) -> None:
        self.start_turn(self.idle(), Outgoing(), text)

    def begin_edit(self, index: int) -> None:
        self.editing.begin(index, self.idle().messages[index].text)

    def pin_next(self, on: bool) -> None:
        self.pins_next = on
        self.write_hint()

    def action_act(self, name: str) -> None:
        if name == "more room later" and not self.failed:  # a note offers it before the prompt is read
            self.outbox.add_once("/budget more")
        else:
            super().action_act(name)

    def open_model(self, name: str, conversation: str | None = None) -> None:
        """The present conversation stays open until the other is. `name`: a model's, perhaps with `YES`."""
        chat = None if self.failed else self.idle()
        if self.opener_of is None:
            raise UsageError("Other models cannot be opened here.")
        open_chat = self.opener_of(name, conversation)
        if chat is not None and chat.keeper:
            chat.keeper.leave()

        def instead(progress: Progress) -> ChatLike:
            other = open_chat(progress)
            if chat is not None:
                chat.close()
            return other

        self.editing.give_up()
        self.current = Outgoing(state="answering")
        self.failed = False
        shown = name.removesuffix(YES)
        self.opening(shown)
        self.start(lambda: self.jobs.load_instead(instead), f"opening {shown} · esc stops")

    def choose_model(self) -> None:
        from psutil import virtual_memory

        keeper = self.ready.keeper if self.ready else None
        used = models_used(keeper.store.folder) if keeper and keeper.store.folder else []

        def chosen(name: str) -> None:
            found = look_up(name.removesuffix(YES))
            if self.chat and isinstance(found, LocalModel) and found.name == self.chat.session.model:
                self.divider.say(f"{found.name} is open already")
            else:
                self.open_model(name)

        self._ask(Models(list(rows(virtual_memory().total, used))), chosen)

    def choose_conversation(self) -> None:
        chat = self.idle()
        assert chat.keeper is not None
        keeper = chat.keeper
        screen = Conversations(keeper.store, keeper.conversation, chat.session.model)
        self._ask(screen, partial(bodies.open_conversation, self))

    def choose_setting(self) -> None:
        def chosen(changed: Changed) -> None:
            if changed.theme:
                self.app.theme = changed.theme
            if changed.values:
                settable.apply(self, changed.values)

        screen = SettingsScreen(
            settable.values(self.idle(), self.sampling),
            sorted(self.app.available_themes),
            self.app.theme,
            lambda new: settable.check(self.idle(), new),
        )
        self._ask(screen, chosen)

    def find(self, words: str) -> None:
        self.find_bar.open(words)

    def help(self) -> None:
        self.app.action_help()  # type: ignore[attr-defined]

    def leave(self) -> None:
        self.app.exit()

    def act(self, name: str, words: str) -> None:
        ACTS[name](self, words)

    def _ask(self, dialog: ModalScreen[Chosen | None], act: Callable[[Chosen], None]) -> None:
        """Show a dialog and act on what is chosen; then what waits goes on."""

        def closed(chosen: Chosen | None) -> None:
            if chosen is not None:
                try:
                    act(chosen)
                except H2OChatError as error:
                    self.show_error(error)
            self.send_next()

        self.app.push_screen(dialog, closed)


def copy(pane: CommandPane, words: str) -> None:
    """Copy the last answer, code, or a message by its number.

    The code is the longest block of the newest answer that has any: shorter ones show how it is called.
    """
    messages, views = pane.idle().messages, pane.transcript.messages.by_index
    answers = [n for n, one in enumerate(messages) if one.role == "assistant" and n in views]
    if words == "code":
        blocks = ((max(code_blocks(views[n].said), key=len, default=""), n) for n in reversed(answers))
        code, index = next((one for one in blocks if one[0].strip()), ("", -1))
        if not code:
            raise UsageError("No answer has a code block.", "/copy takes the last answer, /copy NUMBER any.")
        return pane.copy(code, f"the longest code block of {numbered(index)}")
    if any(character.isdecimal() for character in words):
        index = bodies.message_index(pane, words)
    elif words:
        raise UsageError(f"{words!r} is nothing to copy.", "/copy, /copy code or /copy NUMBER")
    else:
        index = max(answers, default=-1)
    view = views.get(index)
    if view is None and index >= 0:  # of the earlier ones, which are not shown
        view = MessageView(messages[index].role, "", messages[index].text)
    if view is None or not view.said:
        raise UsageError("There is nothing to copy.", "/copy, /copy code or /copy NUMBER")
    pane.copy(view.said, numbered(index))


def theme(pane: CommandPane, words: str) -> None:
    themes = pane.app.available_themes
    if words not in themes:
        what = f"There is no theme {words!r}." if words else "Which theme?"
        raise UsageError(what, f"One of: {', '.join(sorted(themes))}.")
    pane.app.theme = words


def edit_chosen(pane: CommandPane, _: str) -> None:
    """Edit the chosen message, or the last one; where the model said it, say so."""
    view = pane.transcript.choice.view
    if view is not None and view.kind != "user":
        pane.divider.say("only what you said can be said anew · up and down choose that")
    else:
        bodies.edit_message(pane, view.index if view else None)


def pin_chosen(pane: CommandPane, _: str) -> None:
    """Protect the chosen message, or let it be forgotten."""
    view = pane.transcript.choice.view
    if view is not None:
        (bodies.unpin if view.pinned else bodies.pin)(pane, "")


ACTS: Mapping[str, Callable[[CommandPane, str], None]] = {
    **{command.name: command.body for command in commands("screen") if command.body},
    "copy": copy,
    "theme": theme,
    "quiet": lambda pane, _: pane.app.toggle_quiet(),  # type: ignore[attr-defined]
    "editor": lambda pane, _: pane.prompt.action_editor(),
    # keys alone
    "edit chosen": edit_chosen,
    "edit last": lambda pane, _: bodies.edit_message(pane, None),
    "pin chosen": pin_chosen,
    "more room": lambda pane, _: bodies.budget(pane, "more"),
}
"""The bodies of commands and keys, by name; they get the text behind it."""
