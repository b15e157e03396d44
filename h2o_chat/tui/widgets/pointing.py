"""The message about the cursor on a token, which is one for the whole screen."""

from dataclasses import dataclass

from textual.message import Message


@dataclass
class Pointed(Message):
    """The cursor moves to a token, or away: the app sets `CacheView.cursor` and has all drawn again.

    With `follow` the transcript goes to the token's message.
    """

    position: int | None
    follow: bool = False
