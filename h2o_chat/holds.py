"""What messages and words hold: the share of caches that keep each token, as the events told it."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from h2o_chat.detokenize import Detokenizer
from h2o_chat.events import CacheState
from h2o_chat.message import Message
from h2o_chat.store import StoredMessage


class Holds:
    """Hold by position, of the tokens of which something is left: as many as the cache has slots."""

    def __init__(self) -> None:
        self._held: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._held)

    def forget(self) -> None:
        """Nothing is known, until the next state."""
        self._held.clear()

    def take(self, state: CacheState) -> None:
        """What has changed since the last state."""
        if state.whole:
            self._held.clear()
        for position, hold, _ in state.changed:
            if hold > 0:
                self._held[position] = hold
            else:
                self._held.pop(position, None)

    def share_out(self, messages: Sequence[Message], seen: int) -> list[tuple[int, float]]:
        """Sets what each message that was read holds; (index, mean hold of its tokens) where any is left.

        Args:
            seen: tokens fed so far.
        """
        placed = [index for index, message in enumerate(messages) if message.first >= 0]
        firsts = [messages[index].first for index in placed]
        total: dict[int, float] = {}
        for position, hold in self._held.items():
            at = bisect_right(firsts, position) - 1
            if at >= 0:
                total[placed[at]] = total.get(placed[at], 0.0) + hold
        for index in placed:
            message = messages[index]
            fed = min(message.last + 1, seen) - message.first  # the last token of an answer waits
            message.hold = total.get(index, 0.0) / fed if fed > 0 else 1.0
        return [(index, messages[index].hold) for index in sorted(total)]

    def by_token(self, message: StoredMessage, tokenizer: Any) -> list[tuple[str, float]]:
        """The tokens of a message as they read, each with its hold; none where it was not read.

        A character made of several tokens has the largest.
        """
        fed = message.last - message.first + 1
        if message.first < 0 or not 0 < fed <= len(message.ids):
            return []
        skipped = len(message.ids) - fed if message.role == "user" else 0  # those of a system prompt
        text = Detokenizer(tokenizer, list(message.ids[:skipped]))
        pieces, hold = [], 0.0
        for place, token in enumerate(message.ids[skipped : skipped + fed], message.first):
            hold = max(hold, self._held.get(place, 0.0))
            if piece := text.add(token):
                pieces.append((piece, hold))
                hold = 0.0
        if piece := text.flush():
            pieces.append((piece, hold))
        return pieces
