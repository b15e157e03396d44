"""Whether an answer has begun to say the same over and over, and would push all else out of the memory."""

LONGEST_TOKENS = 64
"""Of what is repeated."""
ENOUGH_TOKENS, ENOUGH_TIMES = 256, 16
"""So many tokens of nothing else, and so many times, are a loop: rows of a table that are alike are no loop.
Who asks for a hundred equal lines gets these, and is told how to get more."""
EVERY_TOKENS = 32
"""So often it is looked: it takes 30 microseconds."""
_KEPT = LONGEST_TOKENS * ENOUGH_TIMES


class Repeating:
    """Hears the tokens of one answer."""

    def __init__(self) -> None:
        self.tokens = 0
        """Of what is repeated; 0 while nothing is."""
        self._newest: list[int] = []
        self._heard = 0

    def hear(self, token: int) -> None:
        """One more token."""
        self._newest.append(token)
        self._heard += 1
        if self.tokens or self._heard % EVERY_TOKENS:
            return
        self._newest = self._newest[-_KEPT:]
        self.tokens = next((one for one in range(1, LONGEST_TOKENS + 1) if self._repeats(one)), 0)

    def _repeats(self, length: int) -> bool:
        """Whether the newest tokens are the same so many, for long enough."""
        newest = self._newest
        enough = max(ENOUGH_TOKENS, length * ENOUGH_TIMES)
        if len(newest) < enough or newest[-1] != newest[-1 - length]:
            return False
        return newest[-enough + length :] == newest[-enough:-length]
