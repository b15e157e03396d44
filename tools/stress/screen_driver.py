"""Drives the screen key by key on a terminal that only notes what is written to it and when.

It does not wait for idle widgets, as Textual's Pilot would, because that would be measured too.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import ClassVar

from textual import events
from textual.drivers.headless_driver import HeadlessDriver

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import H2OChatError
from h2o_chat.tui.chat_app import ChatApp
from h2o_chat.tui.pane.jobs import OpenChat
from h2o_chat.tui.pane.pane import Pane

SIZE = (120, 36)
DRAWN_S = 120.0
"""A wait beyond this has failed."""
QUIET_S = 0.3


class Terminal(HeadlessDriver):
    """A headless terminal for which the app draws all the same."""

    drawn: ClassVar[list[float]] = []
    """Times of writes, by `time.perf_counter`."""
    wrote: ClassVar[asyncio.Event]
    """Set by each write; whoever waits clears it."""

    def start_application_mode(self) -> None:
        Terminal.wrote = asyncio.Event()
        super().start_application_mode()

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        self.drawn.append(time.perf_counter())
        self.wrote.set()


@asynccontextmanager
async def shown(open_chat: OpenChat, pane: Pane | None = None) -> AsyncIterator[ChatApp]:
    app = ChatApp(open_chat, Settings(), Sampling(), pane=pane)
    app.driver_class = Terminal
    running = asyncio.create_task(app.run_async(size=SIZE))
    try:
        await until(lambda: app.is_running and app.chat is not None)
        if pane is None:
            app.prompt.cursor_blink = False  # which would be taken for an answer
            await settled(0)
        yield app
    finally:
        app.exit()
        await running


def press(app: ChatApp, key: str) -> None:
    driver = app._driver
    assert driver is not None
    driver.process_message(events.Key("space" if key == " " else key, key))


async def drawn(act: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds from an act to the next write, and milliseconds of work in this thread."""
    before, began, worked = len(Terminal.drawn), time.perf_counter(), time.thread_time()
    act()
    end = await written(before)
    return (end - began) * 1000, (time.thread_time() - worked) * 1000


async def written(before: int) -> float:
    """Time of the next write."""
    while len(Terminal.drawn) <= before:  # not by looking again and again, which would be work too
        Terminal.wrote.clear()
        try:
            await asyncio.wait_for(Terminal.wrote.wait(), DRAWN_S)
        except TimeoutError:  # which is an OSError, and would be told as one
            raise _silent(DRAWN_S) from None
    return Terminal.drawn[before]


async def settled(before: int) -> float:
    """Time of the last write before it falls silent."""
    await written(before)
    while time.perf_counter() - Terminal.drawn[-1] < QUIET_S:
        await asyncio.sleep(QUIET_S / 3)
    return Terminal.drawn[-1]


async def until(met: Callable[[], object], seconds: float = DRAWN_S) -> None:
    end = time.perf_counter() + max(seconds, DRAWN_S)
    while not met():
        if time.perf_counter() > end:
            raise _silent(max(seconds, DRAWN_S))
        await asyncio.sleep(0.0005)


def _silent(seconds: float) -> H2OChatError:
    return H2OChatError(f"The screen did not answer within {seconds:.0f} s.", "Is the machine very busy?")
