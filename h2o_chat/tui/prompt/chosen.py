"""Which message a command means: by its number, or the one that is marked."""

import re

from h2o_chat.base.errors import UsageError
from h2o_chat.chat.conversation.message import no_such
from h2o_chat.tui.prompt.talk_pane import TalkPane


def message_index(pane: TalkPane, words: str) -> int:
    """The place of a message: by the number that stands at its head (`3` or `#3`), or the one that is marked.

    Raises:
        UsageError: it is no number, or no message has it.
    """
    if not words:
        assert pane.transcript.selected is not None
        return pane.transcript.selected
    if not re.fullmatch(r"#?\d{1,9}", words):
        raise UsageError(f"{words!r} is no number of a message.", "It stands at its head: 3 or #3.")
    index, count = int(words.removeprefix("#")) - 1, len(pane.chat.messages) if pane.chat else 0
    if not 0 <= index < count:
        raise no_such(index, count)
    return index
