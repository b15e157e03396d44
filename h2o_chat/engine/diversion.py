"""Keeps an answer from repeating earlier ones. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class EarlierAnswer:
    """An earlier answer."""

    ids: tuple[int, ...]
    free: int
    """Number of its first tokens that may be repeated."""


class Diversion:
    """Follows the tokens of an answer, and knows which may not come next."""

    def __init__(self, others: Sequence[EarlierAnswer]) -> None:
        self._followed = list(others)
        """Those that begin as the answer does."""
        self._said = 0

    def refused(self) -> list[int]:
        """Tokens that would continue as one of the others did, beyond what may be repeated."""
        at = self._said
        return [one.ids[at] for one in self._followed if one.free <= at < len(one.ids)]

    def hear(self, token: int) -> None:
        at, self._said = self._said, self._said + 1
        if self._followed:
            self._followed = [one for one in self._followed if at < len(one.ids) and one.ids[at] == token]
