"""What `/pin` and `/unpin` do."""

from h2o_chat.base.errors import UsageError
from h2o_chat.chat import pins
from h2o_chat.tui.talk.chosen import message_number
from h2o_chat.tui.talk.editing import Sent
from h2o_chat.tui.talk.talk import TalkPane


def pin(pane: TalkPane, words: str) -> None:
    if words == "next" or (not words and pane.transcript.selected is None):
        _pin_next(pane, not pane.pins_next or words == "next")
    else:
        _pin(pane, message_number(pane, words), True)


def unpin(pane: TalkPane, words: str) -> None:
    if not words and pane.transcript.selected is None and pane.pins_next:
        _pin_next(pane, False)
        return
    if not words and pane.transcript.selected is None:
        pinned = [number for number, one in enumerate(pane.idle().messages) if one.pinned]
        if len(pinned) != 1:
            listed = ", ".join(map(str, pinned)) or "none"
            raise UsageError("Which message?", f"/unpin NUMBER; pinned are: {listed}.")
        words = str(pinned[0])
    _pin(pane, message_number(pane, words), False)


def _pin_next(pane: TalkPane, on: bool) -> None:
    """Protect the next message as it is sent, or do not."""
    pane.pins_next = on
    pane.write_hint()


def _pin(pane: TalkPane, index: int, on: bool) -> None:
    """Protect a message, or let it go."""
    talk = pane.idle()
    pane.sent = Sent(taken=True)
    pane.begin(lambda *_: pins.pin(talk, index, on), "pinning")
