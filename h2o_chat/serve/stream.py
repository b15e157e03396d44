"""What is told of one request, from the thread that computes to the client that reads.

It has an end: who does not read fast enough is cut off, so that nobody else's memory or time is spent on it.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from h2o_chat.events.events import Note, Turn
from h2o_chat.serve.errors import ApiError

MOST_TEXTS = 1024
"""Pieces of an answer that may wait for their reader, beside what the sockets hold."""


@dataclass(frozen=True)
class Ended:
    """An answer came to its end."""

    turn: Turn
    cached_tokens: int
    """Of its prompt, those that were read for an earlier request."""
    prompt_ms: float
    """Time of reading the others."""
    row: int | None
    error: ApiError | None
    """Why it ended early."""
    notes: Sequence[Note] = ()
    """What was recalled."""


Item = str | Ended | ApiError


class Stream:
    """Used in the event loop alone, but for `sent`.

    Args:
        texts: whether the text is wanted as it comes, not at the end alone.
    """

    def __init__(self, texts: bool) -> None:
        self._texts = texts
        self._items: deque[Item] = deque()
        self._some = asyncio.Event()
        self.sent = threading.Event()
        """All that was told is sent; any thread may wait for it."""
        self.ended = False
        """Nothing more comes."""

    def put(self, item: Item) -> bool:
        """Tells the reader; whether it is one that keeps up."""
        if self.ended or (isinstance(item, str) and not self._texts):
            return True
        slow = isinstance(item, str) and len(self._items) >= MOST_TEXTS
        if slow:
            item = ApiError(
                429, f"The answer was ended: {MOST_TEXTS:,} tokens of it waited to be read.", "too_slow"
            )
        self._items.append(item)
        self.ended = not isinstance(item, str)
        self._some.set()
        return not slow

    async def take(self, longest_s: float) -> list[Item]:
        """All that waits, in its order; empty after so long without anything."""
        self.sent.set()
        try:
            async with asyncio.timeout(longest_s):
                await self._some.wait()
        except TimeoutError:
            return []
        self._some.clear()
        items = list(self._items)
        self._items.clear()
        return items
