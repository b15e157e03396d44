"""Whether an answer says the same over and over, and would push all else out of the memory."""

LONGEST_TOKENS = 64
"""Of what is repeated."""
ENOUGH_TOKENS = 256
"""So many of nothing else are a loop, and no verse or table."""
EVERY_TOKENS = 32
"""So often it is looked."""


class Repeating:
    """Hears the tokens of one answer."""

    def __init__(self) -> None:
        self.tokens = 0
        """Of what is repeated; 0 while nothing is."""
        self._newest: list[int] = []

    def hear(self, token: int) -> None:
        """One more token."""
        self._newest.append(token)
        if self.tokens or len(self._newest) < ENOUGH_TOKENS:
            return
        newest = self._newest[-ENOUGH_TOKENS:]
        lengths = range(1, LONGEST_TOKENS + 1)
        self.tokens = next((one for one in lengths if newest[one:] == newest[:-one]), 0)
        self._newest = newest[EVERY_TOKENS:]
