"""Hold of messages: the share of caches that keep each token, from the `cache` events."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from h2o_chat.chat.conversation.message import Message
from h2o_chat.chat.conversation.spans import tokens_of, tokens_read, was_read
from h2o_chat.events.events import CacheState

TURN = 3
"""Messages whose positions one turn may change: system prompt, message, answer."""


class Holds:
    """Hold by position, for the tokens that some cache keeps: at most as many as the cache has slots."""

    def __init__(self) -> None:
        self._held: dict[int, float] = {}
        self._placed: list[int] = []
        """Indices of the messages that were read."""
        self._firsts: list[int] = []
        """Position of the first token of each."""
        self._known = 0
        """How many messages there were at the last look."""
        self._holding: list[int] = []
        """Indices of the messages that held anything then."""

    def __len__(self) -> int:
        return len(self._held)

    def forget(self) -> None:
        """Forget all until the next state; the messages may be others."""
        for known in (self._held, self._placed, self._firsts, self._holding):
            known.clear()
        self._known = 0

    def take(self, state: CacheState) -> None:
        if state.whole:
            self._held.clear()
        for position, hold, _ in state.changed:
            if hold > 0:
                self._held[position] = hold
            else:
                self._held.pop(position, None)

    def share_out(self, messages: Sequence[Message], seen: int) -> list[tuple[int, float]]:
        """Sets `hold` of each message that was read; returns (index, mean hold of its tokens) if above 0."""
        new = self._place(messages)
        total: dict[int, float] = {}
        for position, hold in self._held.items():
            at = bisect_right(self._firsts, position) - 1
            if at >= 0:
                total[self._placed[at]] = total.get(self._placed[at], 0.0) + hold
        for index in {*self._holding, *total, *self._placed[new:]}:
            message = messages[index]
            read = tokens_read(tokens_of(message), seen)
            message.hold = total.get(index, 0.0) / read if read else 1.0
        self._holding = sorted(total)
        return [(index, messages[index].hold) for index in self._holding]

    def _place(self, messages: Sequence[Message]) -> int:
        """Finds the messages that may have moved: a long conversation costs no more than a short one.

        Returns:
            From where on `_placed` is new.
        """
        start = max(0, min(self._known, len(messages)) - TURN)
        if messages and was_read(messages[0]) and self._placed[:1] != [0]:
            start = 0  # a system prompt that was read at last
        kept = bisect_left(self._placed, start)
        del self._placed[kept:], self._firsts[kept:]
        for index in range(start, len(messages)):
            if was_read(messages[index]):
                self._placed.append(index)
                self._firsts.append(messages[index].first)
        self._known = len(messages)
        self._holding = [index for index in self._holding if index < len(messages)]
        return kept
