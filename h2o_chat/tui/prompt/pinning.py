"""What `/pin` and `/unpin` do."""

from h2o_chat.base.errors import UsageError
from h2o_chat.chat.conversation import pinning
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.tui.prompt.chosen import message_index
from h2o_chat.tui.prompt.editing import Sent
from h2o_chat.tui.prompt.talk_pane import TalkPane


def pin(pane: TalkPane, words: str) -> None:
    if words == "next" or (not words and pane.transcript.selected is None):
        _pin_next(pane, not pane.pins_next or words == "next")
    elif words.split(" ")[0] == "again":
        _say_again(pane, words.removeprefix("again").strip())
    else:
        _pin(pane, message_index(pane, words), True)


def unpin(pane: TalkPane, words: str) -> None:
    if not words and pane.transcript.selected is None and pane.pins_next:
        _pin_next(pane, False)
        return
    if not words and pane.transcript.selected is None:
        pinned = [numbered(index) for index, one in enumerate(pane.idle().messages) if one.pinned]
        if not pinned:
            raise UsageError("No message is pinned.", "/pin NUMBER protects one.")
        if len(pinned) > 1:
            raise UsageError("Which message?", f"/unpin NUMBER; pinned are: {', '.join(pinned)}.")
        words = pinned[0]
    _pin(pane, message_index(pane, words), False)


def _pin_next(pane: TalkPane, on: bool) -> None:
    """Protect the next message as it is sent, or do not."""
    pane.pins_next = on
    pane.write_hint()


def _say_again(pane: TalkPane, words: str) -> None:
    """Say what is forgotten once more, and pin it."""
    talk = pane.idle()
    if not words and pane.transcript.selected is None:
        raise UsageError("Which message?", "/pin again NUMBER")
    message = talk.messages[index := message_index(pane, words)]
    if message.role != "user":
        raise UsageError(f"{numbered(index)} is not one of yours.", "Only what you said can be said again.")
    pane.pins_next = True
    pane.say(talk, "", message.text)  # it was not typed: where it cannot be said it comes into no box


def _pin(pane: TalkPane, index: int, on: bool) -> None:
    """Protect a message, or let it go."""
    talk = pane.idle()
    pane.sent = Sent(taken=True)
    pane.begin(lambda *_: pinning.pin(talk, index, on), "pinning")
