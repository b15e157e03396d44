"""From one stored conversation to another."""

from collections.abc import Callable

from h2o_chat.base.errors import StoreError
from h2o_chat.base.progress import never, unheard
from h2o_chat.chat.chat import Chat
from h2o_chat.events.events import ReadSoFar


def open_another(
    chat: Chat,
    conversation: str,
    progress: Callable[[ReadSoFar], None] = unheard,
    cancel: Callable[[], bool] = never,
) -> bool:
    """Goes on with another stored conversation, where it ended; this one is let go.

    Returns:
        False if it was cancelled: then nothing has changed. So it is if anything is raised.

    Raises:
        StoreError: it cannot be read (`BusyError`: it is open elsewhere), or nothing is stored here.
        UsageError: there is no such conversation, or it was held with another model.
    """
    if chat.keeper is None:
        raise StoreError("Conversations are not stored here: there is none to open.")
    left, opened = chat.keeper, False
    left.leave()
    chat.keeper = left.other(conversation)
    try:
        opened = chat.resume(progress, cancel)
    finally:
        gone = left if opened else chat.keeper
        chat.keeper = chat.keeper if opened else left
        gone.close()
    chat.notes = chat.keeper.notes
    return opened
