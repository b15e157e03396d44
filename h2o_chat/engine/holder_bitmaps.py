"""Bitmaps of the caches that hold each token; only changes are told, compared and packed all at once."""

import numpy as np
from numpy.typing import NDArray

MOST_DIGITS = 4 << 20
"""Hexadecimal digits in one event: a line of a recording has a limit, and a screen little time."""


class Holders:
    """Remembers the last bitmaps, so that only changes are told; bounded like the cache."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Tell everything the next time."""
        self._positions: NDArray[np.int64] = np.empty(0, np.int64)
        self._told: NDArray[np.uint8] = np.empty((0, 0), np.uint8)

    def changed(
        self, positions: NDArray[np.int64], which: NDArray[np.int64], where: NDArray[np.int64], caches: int
    ) -> list[tuple[int, str]]:
        """(position, bitmap as hexadecimal digits) of the tokens whose caches have changed.

        Args:
            positions: [P] of the held tokens, in order.
            which: for each slot in use, the index of its token.
            where: for each slot in use, the number of its cache.
            caches: layers x KV heads.
        """
        bits = np.zeros((len(positions), caches), bool)
        bits.ravel()[which * caches + where] = True
        maps = np.packbits(bits, 1)
        news = np.ones(len(positions), bool)
        if len(self._positions) and self._told.shape[1] == maps.shape[1]:
            at = np.minimum(np.searchsorted(self._positions, positions), len(self._positions) - 1)
            news = (self._positions[at] != positions) | (self._told[at] != maps).any(1)
        tell = np.flatnonzero(news)
        digits = 2 * maps.shape[1]
        if len(tell) > (most := MOST_DIGITS // digits):
            tell = np.sort(tell[np.argsort(-bits[tell].sum(1), kind="stable")[:most]])
        known = ~news
        known[tell] = True
        self._positions, self._told = positions[known], maps[known]
        text = maps[tell].tobytes().hex()
        return [
            (position, text[at * digits : (at + 1) * digits])
            for at, position in enumerate(positions[tell].tolist())
        ]
