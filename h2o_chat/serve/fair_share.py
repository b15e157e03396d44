"""Shares limited resources fairly among keys."""

from collections import Counter


class FairShare:
    """A limited resource. A key gets more only while more is free than it has: at most half of it.

    A single key may take all; with 0 keys all clients count as one.
    """

    def __init__(self, most: int, keys: int) -> None:
        self._most, self._keys = most, keys
        self.held: Counter[bytes] = Counter()
        """Amount by key."""

    def has_room(self, owner: bytes, count: int = 1) -> bool:
        own = self.held[owner] if self._keys > 1 else 0
        return own + count <= self._most - self.held.total()

    def give_back(self, owner: bytes, count: int = 1) -> None:
        self.held[owner] -= count
        if not self.held[owner]:
            del self.held[owner]
