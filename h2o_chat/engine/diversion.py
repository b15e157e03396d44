"""An answer that must not go on as others did. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Other:
    """An answer given before."""

    ids: tuple[int, ...]
    free: int
    """So many of its first tokens may be said again."""


class OtherWords:
    """Hears the tokens of an answer, and knows which may not come next."""

    def __init__(self, others: Sequence[Other]) -> None:
        self._followed = list(others)
        """Those that begin as the answer does."""
        self._said = 0

    def refused(self) -> list[int]:
        """Tokens that would go on as one of the others did, beyond what may be said again."""
        at = self._said
        return [one.ids[at] for one in self._followed if one.free <= at < len(one.ids)]

    def hear(self, token: int) -> None:
        """One more token."""
        at, self._said = self._said, self._said + 1
        if self._followed:
            self._followed = [one for one in self._followed if at < len(one.ids) and one.ids[at] == token]
