"""The texts of a message's tokens, and the token of each character."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate


class Tokens:
    """Compact: one text and one number a token, since a conversation may be long.

    A token without a text has begun a character that a later one completes: they are shown together.

    Args:
        first: position of the first token.
        texts: of the tokens.
    """

    def __init__(self, first: int, texts: Sequence[str] = ()) -> None:
        self.first = first
        self.text = "".join(texts)
        self._ends = array("Q", accumulate(map(len, texts)))

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, text: str) -> None:
        self.text += text
        self._ends.append(len(self.text))

    def span(self, position: int) -> tuple[int, int] | None:
        """(first, behind the last) character of a token; None where it has none."""
        at = position - self.first
        if not 0 <= at < len(self._ends):
            return None
        start = self._ends[at - 1] if at else 0
        if start == len(self.text):
            return None
        return start, self._ends[bisect_right(self._ends, start)]

    def own_text(self, position: int) -> str:
        """The characters that a token adds by itself."""
        at = position - self.first
        if not 0 <= at < len(self._ends):
            return ""
        return self.text[self._ends[at - 1] if at else 0 : self._ends[at]]

    def at(self, character: int) -> int | None:
        """Position of the token that completes a character."""
        if not 0 <= character < len(self.text):
            return None
        return self.first + bisect_right(self._ends, character)

    def groups(self, start: int, end: int) -> Iterator[tuple[int, int, range]]:
        """(first, behind the last character, positions) of the tokens shown from `start` to before `end`."""
        at = start
        while at < min(end, len(self.text)):
            last = bisect_right(self._ends, at)
            begin = self._ends[last - 1] if last else 0
            first = bisect_left(self._ends, begin) + 1 if begin else 0
            yield (
                max(begin, start),
                min(self._ends[last], end),
                range(self.first + first, self.first + last + 1),
            )
            at = self._ends[last]

    def own(self, source: str) -> tuple[int, int]:
        """Range of the message's own words, without the template around them.

        All of it where they are not found: some tokenizers change what they read.
        """
        for words in (source, source.strip()):
            at = self.text.find(words)
            if at >= 0 and words:
                return at, at + len(words)
        return 0, len(self.text)
