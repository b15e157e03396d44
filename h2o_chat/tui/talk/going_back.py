"""What commands and keys do that go back: answer again, say something else, go to another branch."""

from dataclasses import replace
from time import monotonic

from h2o_chat.base.errors import UsageError
from h2o_chat.chat import again
from h2o_chat.chat.chat import Chat
from h2o_chat.chat.message import numbered
from h2o_chat.tui.talk import branches, changing
from h2o_chat.tui.talk.chosen import message_index
from h2o_chat.tui.talk.editing import Sent
from h2o_chat.tui.talk.talk import TalkPane

AGAIN_SECONDS = 10.0
"""A second press within this time means it."""
DRAWN_AT = 0.8
"""The temperature at which another answer is drawn."""
REPEATS = f"at temperature 0 the same words come again · ctrl+r again draws others, at {DRAWN_AT}"


def regenerate(pane: TalkPane, words: str) -> None:
    """Answer the last message once more, at the temperature named or that of all answers.

    Where the same words would come again that is said first; asked for once more, other words are drawn.
    """
    if (talk := pane.ready) is None or not _can_go_back(pane, talk):
        return
    sampling = pane.sampling
    if words:
        sampling = replace(sampling, temperature=changing.read("temperature", words))
    elif _would_repeat(pane, talk):
        if monotonic() - pane.again_asked > AGAIN_SECONDS:
            pane.again_asked = monotonic()
            pane.divider.say(REPEATS, AGAIN_SECONDS)
            return
        sampling = replace(sampling, temperature=DRAWN_AT)
    pane.again_asked = float("-inf")
    pane.divider.say("")  # it was asked for: nothing needs to be said any more
    pane.editing.give_up()
    pane.sent = Sent(edits=_last_said(talk))
    pane.begin(
        lambda cancel, progress: again.regenerate(talk, sampling, cancel, progress),
        "going back · esc stops",
    )


def _would_repeat(pane: TalkPane, talk: Chat) -> bool:
    """Whether the last answer would be made of the same words: nothing is drawn, and nothing has changed."""
    answer, now = talk.messages[-1], pane.sampling
    settings, sampling = answer.made_with or (talk.settings, now)
    same = (settings, replace(sampling, temperature=0.0)) == (talk.settings, now)  # so at temperature 0
    whole = answer.finish in ("eos", "stop", "length") or answer.repeats
    # What was stopped goes on once; stopped again, in that answer too, it was not wanted.
    unwanted = answer.finish == "stopped" and talk.messages[-2].branch is not None
    return same and answer.role == "assistant" and (whole or unwanted)


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
