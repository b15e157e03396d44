"""Messages about the cursor on a token, one for the whole screen, and about the chosen message."""

from textual.message import Message


class Pointed(Message):
    """The cursor moves to a token, or away. Posted by any widget; the app takes it.

    It sets `CacheView.cursor` and has the panel, the strip and the transcript drawn again.
    """

    def __init__(self, position: int | None, *, follow: bool = False) -> None:
        """Args:
        follow: the transcript goes to its message.
        """
        super().__init__()
        self.position = position
        self.follow = follow


class Chosen(Message):
    """Another message is chosen in the transcript, or none; the pane shows what can be done."""
