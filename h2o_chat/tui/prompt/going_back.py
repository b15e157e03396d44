"""What commands and keys do that go back: answer again, say something else, go to another branch."""

from dataclasses import replace

from h2o_chat.base.errors import UsageError
from h2o_chat.chat.commands import settable
from h2o_chat.chat.conversation import going_back
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.tui.prompt import branches
from h2o_chat.tui.prompt.chosen import message_index
from h2o_chat.tui.prompt.editing import Sent
from h2o_chat.tui.prompt.talk_pane import TalkPane


def regenerate(pane: TalkPane, words: str) -> None:
    """Answer the last message in other words, at the temperature named or that of all answers."""
    if (talk := pane.ready) is None or not _can_go_back(pane, talk):
        return
    sampling = pane.sampling
    if words:
        sampling = replace(sampling, temperature=settable.read("temperature", words))
    pane.editing.give_up()
    pane.sent = Sent(edits=_last_said(talk))
    pane.begin(
        lambda cancel, progress: going_back.regenerate(talk, sampling, cancel, progress),
        "going back · esc stops",
    )


def edit(pane: TalkPane, words: str) -> None:
    """Put a message into the box: by its number, the marked one, or the last."""
    _edit(pane, message_index(pane, words) if words else pane.transcript.selected)


def edit_chosen(pane: TalkPane, _: str) -> None:
    """Put the marked message into the box, or the last one; where it is no message of the user, say so."""
    chosen = pane.transcript.selected
    view = None if chosen is None else pane.transcript.messages.by_index.get(chosen)
    if view is not None and view.kind != "user":
        pane.divider.say("only what you said can be said anew · up and down choose that")
    else:
        _edit(pane, chosen)


def edit_last(pane: TalkPane, _: str) -> None:
    """Put the last message into the box."""
    _edit(pane, None)


def _edit(pane: TalkPane, index: int | None) -> None:
    if (talk := pane.ready) is None or not _can_go_back(pane, talk):
        return
    index = _last_said(talk) if index is None else index
    assert index is not None
    if not 0 <= index < len(talk.messages) or talk.messages[index].role != "user":
        raise UsageError(f"{numbered(index)} is not one of yours.", "Only what you said can be said anew.")
    pane.editing.begin(index, talk.messages[index].text)


def branch(pane: TalkPane, words: str) -> None:
    """Go to the next branch at a message, or at the last one that has any; and back."""
    pane.idle()
    index = message_index(pane, words) if words else pane.transcript.selected
    if (talk := pane.ready) is None or not _can_go_back(pane, talk):
        return
    fork = branches.next_fork(talk, index)
    if fork is None:
        pane.divider.say("nothing else was said here · e and ctrl+r begin a branch")
        return
    chosen = pane.transcript.letters  # before it ends with what is edited
    pane.editing.give_up()
    pane.sent = Sent(fork=fork.index, chosen=chosen)
    pane.begin(lambda cancel, progress: branches.go(talk, fork, cancel, progress), "going there · esc stops")


def _can_go_back(pane: TalkPane, talk: Chat) -> bool:
    """Whether there is anything to go back to; else it is said."""
    index = _last_said(talk)
    if index is None:
        pane.divider.say("nothing was said yet")
    elif talk.keeper is None or talk.messages[index].id is None:
        pane.divider.say("this conversation is not stored: there is no going back")
        index = None
    return index is not None


def _last_said(talk: Chat) -> int | None:
    own = [index for index, message in enumerate(talk.messages) if message.role == "user"]
    return own[-1] if own else None
