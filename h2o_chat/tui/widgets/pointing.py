"""The token under the cursor, one for the whole screen, whoever moves it; and the message that is chosen."""

from dataclasses import dataclass

from textual.message import Message


class Pointed(Message):
    """Somebody points at a token, or at none any more. Posted by any widget; the app takes it.

    It sets `CacheView.cursor` and has the panel, the strip and the transcript drawn again.
    """

    def __init__(self, position: int | None, *, follow: bool = False) -> None:
        """
        Args:
            position: of the token.
            follow: whether the transcript goes to the message that it stands in.
        """
        super().__init__()
        self.position = position
        self.follow = follow


@dataclass
class CodeClicked(Message):
    """Somebody has clicked the mark of a code block."""

    code: str


class Chosen(Message):
    """Another message is chosen in the transcript, or none any more. Posted by it; the pane says so."""
