"""The end of a conversation: nobody leaves before all is stored, or it was said what is not."""

import sys
import time

from h2o_chat.base.errors import StoreError, UsageError
from h2o_chat.base.program_name import NAME, data_flag, program_name
from h2o_chat.base.system import handling
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.keeper import Keeper

LOOK_S, SAY_S = 0.05, 5.0
"""Between two looks whether the store is free, and two lines that it is still waited for."""


def release(keeper: Keeper) -> str:
    """Ends the writing of a conversation; waits, and says so, while another process writes to the store.

    A signal ends the wait. Returns a sentence about what is not stored; empty: all is.
    """
    keeper.end()
    signals: list[int] = []
    with handling(lambda number, _: signals.append(number)):
        said_at = float("-inf")
        while not keeper.flush() and keeper.may_pass and not signals:
            if time.monotonic() - said_at > SAY_S:
                said_at = time.monotonic()
                what = "1 thing is" if keeper.waiting == 1 else f"{keeper.waiting:,} things are"
                line = f"waiting for the store: {what} not written yet · ctrl+c leaves without"
                sys.stderr.write(f"h2o-chat: {line}\n")
            time.sleep(LOOK_S)
    unstored = keeper.unstored
    keeper.close()
    return unstored


def release_chat(chat: Chat) -> None:
    """Lets a conversation of a closed screen go, and says how to go on; StoreError: not all is stored."""
    if (keeper := chat.keeper) is None:
        return chat.close()
    unstored, known_as = release(keeper), stored_as(keeper)
    chat.close()
    keeper.store.empty_log()
    if known_as:
        flags, other = f"--resume {known_as}{data_flag(keeper.store.folder)}", program_name()
        whole = "" if other == NAME else f" ({other} {flags})"
        sys.stderr.write(f"{NAME}: go on with {flags}{whole}\n")
    if unstored:
        raise StoreError(unstored, keeper.rescue.way_back)


def stored_as(keeper: Keeper) -> str | None:
    """The id of a conversation that is at least partly on disk; of the one before, where nothing was said.

    None where the store is lost: what stands there now is not this conversation.
    """
    known_as = keeper.conversation or keeper.before
    if keeper.lost or keeper.store.folder is None:
        return None
    try:
        if known_as:
            keeper.store.leaf(known_as)
    except (StoreError, UsageError):
        return None
    return known_as
