"""The end of a conversation: nothing leaves before it is stored, or was said not to be."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from h2o_chat.keeping import Keeper

LOOK_S = 0.05
"""Between two looks whether the store is free."""


def wait_for_store(keeper: Keeper, left: Callable[[], bool], say: Callable[[int], None]) -> None:
    """Waits while another process is writing to the store, until all is written.

    Args:
        left: whether somebody does not want to wait any longer.
        say: told how many things are not written yet, whenever that changes.
    """
    keeper.end()
    said = 0
    while not keeper.flush() and keeper.may_pass and not left():
        if keeper.waiting != said:
            said = keeper.waiting
            say(said)
        time.sleep(LOOK_S)


def waiting_for(things: int) -> str:
    what = "1 thing is" if things == 1 else f"{things:,} things are"
    return f"waiting for the store: {what} not written yet · ctrl+c leaves without"


@contextmanager
def until_signalled(signals: tuple[signal.Signals, ...]) -> Iterator[Callable[[], bool]]:
    """Signals end nothing but a wait: what is yielded says whether one came."""
    came = False

    def handle(*_: Any) -> None:
        nonlocal came
        came = True

    before = {number: signal.getsignal(number) for number in signals}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, handle)
    try:
        yield lambda: came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say_on_stderr(things: int) -> None:
    sys.stderr.write(f"h2o-chat: {waiting_for(things)}\n")
