"""Passes an answer from the thread that computes to the client that reads.

A client that does not read fast enough is cut off, so that it takes no memory or time from others.
"""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from h2o_chat.events.events import Note, Turn
from h2o_chat.serve.api_errors import ApiError

MOST_TEXTS = 1024
"""Most pieces of an answer that wait for their reader, beside those in socket buffers."""


@dataclass(frozen=True)
class Ended:
    turn: Turn
    cached_tokens: int
    """Prompt tokens that were read for an earlier request."""
    prompt_ms: float
    """Time of reading the other prompt tokens."""
    row: int | None
    error: ApiError | None
    """Why it ended early; None if it did not."""
    notes: Sequence[Note] = ()


Item = str | Ended | ApiError


class Stream:
    """A queue of items, or of the end alone (not `texts`), used only in the event loop (but for `sent`)."""

    def __init__(self, texts: bool) -> None:
        self._texts = texts
        self._items: asyncio.Queue[Item] = asyncio.Queue()
        self.sent = threading.Event()
        """Set when all items are sent; any thread may wait for it."""
        self.ended = False

    def put(self, item: Item) -> bool:
        """Adds an item; returns False if the reader is too slow."""
        if self.ended or (isinstance(item, str) and not self._texts):
            return True
        slow = isinstance(item, str) and self._items.qsize() >= MOST_TEXTS
        if slow:
            what = f"The answer was ended: {MOST_TEXTS:,} tokens of it waited to be read."
            item = ApiError(429, what, "too_slow")
        self._items.put_nowait(item)
        self.ended = not isinstance(item, str)
        return not slow

    async def take(self, longest_s: float) -> list[Item]:
        """All waiting items; empty after `longest_s` seconds without one."""
        self.sent.set()
        try:
            async with asyncio.timeout(longest_s):
                items = [await self._items.get()]
        except TimeoutError:
            return []
        while not self._items.empty():
            items.append(self._items.get_nowait())
        return items
