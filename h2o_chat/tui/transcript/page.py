"""The page: all messages one below the other, and which rows are whose. Heights are guessed until they are
needed."""

from bisect import bisect_right

from h2o_chat.tui.transcript.turn import TurnView


class Page:
    """Messages from top to bottom, in a width.

    Wrapping a long conversation takes a second; only the visible part is wrapped, the rest is guessed.
    """

    def __init__(self) -> None:
        self.views: list[TurnView] = []
        self.width = 1
        self._starts = [0]
        self._good = 0
        """Number of the first messages whose rows are right."""

    @property
    def starts(self) -> list[int]:
        """The first row of each message; then the height of all."""
        if self._good < len(self.views) or len(self._starts) != len(self.views) + 1:
            del self._starts[self._good + 1 :]
            row = self._starts[-1]
            for view in self.views[self._good :]:
                row += view.guess(self.width)
                self._starts.append(row)
            self._good = len(self.views)
        return self._starts

    @property
    def height(self) -> int:
        return self.starts[-1]

    def changed(self, place: int = 0) -> None:
        """Forget the rows from this index on."""
        self._good = min(self._good, place)

    def at(self, row: int) -> int | None:
        """Index of the message that a row belongs to."""
        if not 0 <= row < self.height:
            return None
        return bisect_right(self.starts, row) - 1

    def look(self, top: int, rows: int, follow: bool) -> int:
        """Wrap the visible part; returns the new top row of the window, at the same text.

        Args:
            top: the first visible row.
            rows: of the window.
            follow: the window stays at the end.
        """
        for _ in self.views:  # wrapping one may bring in the next
            top = max(self.height - rows, 0) if follow else min(top, max(self.height - rows, 0))
            first, last = self.at(top), self.at(min(top + rows, self.height) - 1)
            if first is None or last is None:
                return 0
            seen = range(first, last + 1)
            unknown = [place for place in seen if not self.views[place].known(self.width)]
            if not unknown:
                return top
            stays = next((place for place in seen if place not in unknown), first)
            before = self.starts[stays]
            for place in unknown:
                self.views[place].rows(self.width)
            self.changed(first)
            top = max(top + self.starts[stays] - before, 0)
        return top
