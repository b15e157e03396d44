"""Another cache (budget, policy, ...) for a conversation that goes on, built by reading it again."""

from collections.abc import Callable

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import StoreError
from h2o_chat.base.progress import never, unheard
from h2o_chat.chat.chat import Chat
from h2o_chat.chat.resume import build_anew
from h2o_chat.events.events import Note, ReadSoFar


def check(chat: Chat, settings: Settings) -> None:
    """Lets settings through with which the cache can be built again.

    Raises:
        BudgetError: the budget cannot work.
        StoreError: the conversation is not stored: there is nothing to read.
    """
    chat.engine.check(settings)
    if chat.begun and (chat.keeper is None or chat.keeper.leaf is None):
        raise StoreError(
            "This conversation is not stored: there is nothing to build another memory from.",
            "Begin a new one, then change it.",
        )


def rebuild(
    chat: Chat,
    settings: Settings,
    progress: Callable[[ReadSoFar], None] = unheard,
    cancel: Callable[[], bool] = never,
) -> bool:
    """Another cache from here on.

    Returns:
        False if it was cancelled: then nothing has changed. So it is if anything is raised.

    Raises:
        BudgetError: the budget cannot work.
        StoreError: the conversation is not stored: there is nothing to read.
    """
    check(chat, settings)
    engine, notes = chat.engine.remade(settings), list[Note]()
    if chat.begun and chat.keeper and chat.keeper.leaf is not None:
        path = chat.keeper.path(chat.keeper.leaf)
        if not build_anew(engine, chat.template, notes, path, progress, cancel):
            return False
    chat.go_on_with(engine, settings)
    chat.spell()  # a screen that shows it from its beginning forgets what the tokens were
    chat.notes += notes
    return True
