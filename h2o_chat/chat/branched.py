"""Where the branches of a stored conversation part."""

from collections.abc import Sequence

from h2o_chat.chat.keeping import Keeper
from h2o_chat.chat.message import Message


def mark_branches(keeper: Keeper | None, messages: Sequence[Message]) -> None:
    """Notes at each message of the person in whose place others were said, too, which of them it is.

    Raises:
        StoreError: the conversation cannot be read.
    """
    stored = keeper is not None and keeper.conversation is not None
    branches = keeper.store.branches(keeper.conversation) if stored else {}  # type: ignore[union-attr,arg-type]
    for message in messages:
        if message.role == "user" and message.id is not None:
            message.branch = branches.get(message.id)
