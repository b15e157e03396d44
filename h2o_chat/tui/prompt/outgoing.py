"""A message from where it is typed to where it is done: one state, and what the end of each needs to know."""

from dataclasses import dataclass
from typing import Literal

from h2o_chat.chat.files.attached import AttachedFiles

State = Literal["queued", "sent", "answering", "withdrawn"]
"""`queued`: it waits its turn, or for the files that it names. `sent`: its job runs. `answering`: it is part
of the conversation, which a job of a command has changed likewise. `withdrawn`: it was stopped before the
model had read it."""


@dataclass(eq=False)
class Outgoing:
    """A message, or what a command or a key has begun."""

    typed: str = ""
    """The text in the box; empty where nothing was typed."""
    edits: int | None = None
    """Index of the message that it replaces; None: it is a new message."""
    state: State = "queued"
    files: AttachedFiles | None = None
    """The files that it names, while they are read."""
    drawn: int | None = None
    """Index at which it was shown when enter was pressed, before anything was reported."""
    failed: bool = False
    """An error has ended it: what waits behind it comes back."""
    fork: int | None = None
    """Index of the message where another branch begins, where that is opened."""
    chosen: bool = False
    """The person has chosen that message, and it stays chosen."""
