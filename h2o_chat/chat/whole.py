"""A conversation as a whole, for a file."""

from h2o_chat.chat.chat import Chat
from h2o_chat.chat.message import as_conversation
from h2o_chat.store import Conversation


def whole(chat: Chat) -> Conversation:
    """All of it; of one that is not stored, what is on the screen.

    Raises:
        StoreError: it cannot be read.
    """
    if chat.keeper and chat.keeper.conversation:
        chat.keeper.catch_up()
        return chat.keeper.store.whole(chat.keeper.conversation)
    return as_conversation(chat.messages, chat.session.model)


def heat(chat: Chat) -> dict[int, list[tuple[str, float]]]:
    """By message number in the store: its tokens as they read, each with its hold now.

    Only of what is stored: the tokens are there.

    Raises:
        StoreError: it cannot be read.
    """
    path = chat.keeper.path(chat.keeper.leaf) if chat.keeper else []
    found = {message.id: chat.holds.by_token(message, chat.engine.tokenizer) for message in path}
    return {message: tokens for message, tokens in found.items() if tokens}
