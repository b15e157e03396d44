"""Pinned messages: what is still held of them is protected from eviction."""

from collections.abc import Iterator

from h2o_chat.base.errors import UsageError
from h2o_chat.chat.chat import Chat
from h2o_chat.chat.spans import tokens_of
from h2o_chat.events.events import Event


def pin(chat: Chat, index: int, on: bool = True) -> Iterator[Event]:
    """Protects what is still held of message `index` from eviction, or lets it go: `CacheState`, `Note`.

    Raises:
        UsageError: there is no such message, or it was not read.
        BudgetError: so many tokens cannot be protected; nothing has changed.
    """
    if not 0 <= index < len(chat.messages):
        raise UsageError(f"There is no message {index}.", f"They are 0 to {len(chat.messages) - 1}.")
    message = chat.messages[index]
    place = tokens_of(message)
    if not place:
        raise UsageError(f"Message {index} was not read: there is nothing of it to hold.")
    tokens = len(place)
    if on:
        tokens = chat.engine.pin(place)
    else:
        chat.engine.unpin(place)
    note = chat.pinned(message, on, tokens)
    if chat.keeper:
        chat.keeper.save_again(chat.engine)
    chat.look()
    yield from chat.looked()
    yield note
    yield from chat.take_notes()
