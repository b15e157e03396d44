"""Shares limited resources fairly among keys."""

from collections import Counter


class FairShare:
    """A limited resource. A key gets more only while more is free than it has.

    One of several keys therefore gets at most half. A single key may take all.

    Args:
        most: amount for all keys together.
        keys: number of keys; 0: all clients count as one.
    """

    def __init__(self, most: int, keys: int) -> None:
        self.most = most
        self.held: Counter[bytes] = Counter()
        """Amount by key."""
        self._keys = keys

    def has_room(self, owner: bytes, count: int = 1) -> bool:
        own = self.held[owner] if self._keys > 1 else 0
        return own + count <= self.most - self.held.total()

    def give_back(self, owner: bytes, count: int = 1) -> None:
        self.held[owner] -= count
        if not self.held[owner]:
            del self.held[owner]
