"""Resources that all clients share, and how much of them one key may take."""

from collections import Counter


class Share:
    """One thing that there is so much of. A key takes more only while more is free than it has.

    So one key takes at most half, and something is left for the next one. Where there is one key, it may take
    all.

    Args:
        most: of all keys together.
        keys: how many there are; 0: everybody is one.
    """

    def __init__(self, most: int, keys: int) -> None:
        self.most = most
        self.held: Counter[bytes] = Counter()
        """What each key has."""
        self._keys = keys

    def has_room(self, owner: bytes, count: int = 1) -> bool:
        """Whether a key may take so much more."""
        own = self.held[owner] if self._keys > 1 else 0
        return own + count <= self.most - self.held.total()

    def give_back(self, owner: bytes, count: int = 1) -> None:
        """A key has so much less."""
        self.held[owner] -= count
        if not self.held[owner]:
            del self.held[owner]
