"""Which message a command means: by its number, or the one that is marked."""

import re

from h2o_chat.base.errors import UsageError
from h2o_chat.tui.talk.talk import TalkPane


def message_number(pane: TalkPane, words: str) -> int:
    """A message by its number, from 0 on, or the one that is marked.

    Raises:
        UsageError: it is no number.
    """
    if not words:
        assert pane.transcript.selected is not None
        return pane.transcript.selected
    if not re.fullmatch(r"\d{1,9}", words):
        raise UsageError(f"{words!r} is no number of a message.", "They are counted from 0, the oldest.")
    return int(words)
