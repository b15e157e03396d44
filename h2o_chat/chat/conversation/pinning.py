"""Pinned messages: their tokens that are still held are protected from eviction."""

from collections.abc import Iterator

from h2o_chat.base.errors import UsageError
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.message import no_such, numbered
from h2o_chat.chat.conversation.spans import tokens_of
from h2o_chat.events.events import Event


def pin(chat: Chat, index: int, on: bool = True) -> Iterator[Event]:
    """Protects what is still held of message `index`, or stops that; yields `CacheState` and `Note`.

    Raises:
        UsageError: there is no such message, it was not read, none of its tokens is left to protect, or it
            was not pinned and is to be unpinned.
        BudgetError: so many tokens cannot be protected; nothing has changed.
    """
    if not 0 <= index < len(chat.messages):
        raise no_such(index, len(chat.messages))
    message = chat.messages[index]
    if not on and not message.pinned:
        those = [numbered(at) for at, one in enumerate(chat.messages) if one.pinned]
        raise UsageError(f"{numbered(index)} is not pinned.", f"Pinned are: {', '.join(those) or 'none'}.")
    place = tokens_of(message)
    if not place:
        raise UsageError(f"{numbered(index)} was not read: there is nothing of it to hold.")
    tokens = len(place)
    if on:
        tokens = chat.engine.pin(place)
        if not tokens:
            again = f"/pin again {index + 1} says it again, pinned."
            hint = (
                again if message.role == "user" else "Pin it while it is held; /pin next pins what you say."
            )
            raise UsageError(f"Nothing of {numbered(index)} is left to pin: all of it is forgotten.", hint)
    else:
        chat.engine.unpin(place)
    note = chat.mark_pinned(message, on, tokens)
    if chat.keeper:
        chat.keeper.save_again(chat.engine)
    chat.look()
    yield from chat.looked()
    yield note
    yield from chat.take_notes()
