"""What commands and keys do that lead to another conversation, or to another model."""

from collections.abc import Callable, Iterator

from h2o_chat.base.errors import H2OChatError, UsageError
from h2o_chat.base.progress import Progress
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.going_back import open_another
from h2o_chat.chat.conversation.opening import YES
from h2o_chat.events.events import ReadSoFar
from h2o_chat.tui.jobs import ChatLike, Opened, Report
from h2o_chat.tui.prompt.conversation_list import Conversations
from h2o_chat.tui.prompt.editing import Sent
from h2o_chat.tui.prompt.model_list import Models, rows
from h2o_chat.tui.prompt.talk_pane import TalkPane


def new(pane: TalkPane, _: str) -> None:
    """Begin another conversation; this one stays where it is kept."""
    if pane.ready is not None:
        _begin_anew(pane, None)


def system(pane: TalkPane, words: str) -> None:
    """Begin another conversation with this system prompt; without words: tell the present one."""
    talk = pane.idle()
    if words:
        _begin_anew(pane, words)
        return
    now = talk.settings.system
    pane.transcript.messages.note(f"The system prompt: {now}" if now else "There is no system prompt.")


def _begin_anew(pane: TalkPane, system: str | None) -> None:
    talk = pane.idle()
    pane.editing.give_up()
    pane.sent = Sent()

    def work(*_: object) -> Iterator[Report]:
        talk.clear(system)
        yield Opened(talk)

    pane.begin(work, "beginning anew")


def conversations(pane: TalkPane, _: str) -> None:
    """Show the stored conversations, to open one."""
    if (talk := pane.ready) is None:
        return
    if talk.keeper is None:
        pane.divider.say("conversations are not stored here: there are none to open")
        return

    def chosen(conversation: str | None) -> None:
        if conversation is not None and (talk := pane.ready) is not None:
            pane.editing.give_up()
            pane.sent = Sent()
            pane.begin(
                lambda cancel, progress: _open(talk, conversation, cancel, progress), "opening · esc stops"
            )

    screen = Conversations(talk.keeper.store, talk.keeper.conversation, talk.session.model)
    pane.app.push_screen(screen, chosen)


def _open(
    talk: Chat, conversation: str, cancel: Callable[[], bool], progress: Callable[[ReadSoFar], None]
) -> Iterator[Report]:
    if open_another(talk, conversation, progress, cancel):
        yield Opened(talk)


def model(pane: TalkPane, words: str) -> None:
    """Begin a conversation with another model; without words: show which there are, to choose one."""
    if words:
        _open_model(pane, words)
        return

    from psutil import virtual_memory

    def chosen(name: str | None) -> None:
        if name:
            try:
                _open_model(pane, name)
            except H2OChatError as error:
                pane.show_error(error)

    pane.app.push_screen(Models(list(rows(virtual_memory().total))), chosen)


def _open_model(pane: TalkPane, name: str) -> None:
    """The conversation that is open stays so until the other one is.

    Args:
        name: a model's, or that and `YES`.
    """
    talk = None if pane.failed else pane.idle()
    if pane.opener_of is None:
        raise UsageError("Other models cannot be opened here.")
    open_chat = pane.opener_of(name)
    if talk is not None and talk.keeper:
        talk.keeper.leave()

    def instead(progress: Progress) -> ChatLike:
        other = open_chat(progress)
        if talk is not None:
            talk.close()
        return other

    pane.editing.give_up()
    pane.sent = Sent(taken=True)
    pane.failed = False
    shown = name.removesuffix(YES)
    pane.opening(shown)
    pane.start(lambda: pane.jobs.load_instead(instead), f"opening {shown} · esc stops")
