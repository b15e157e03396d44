"""The texts of a message's tokens, and the token of each character."""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

_SPECIAL = re.compile(r"<[|｜]?[^\s<>]*[|｜]?>|\[/?[A-Z_]+\]")
"""Tokens that look like a template's, where nothing better is known."""

BEGIN_CHARACTERS, END_CHARACTERS = 40, 4
"""Characters of a message's beginning and end, by which it is found where recalled pieces stand between."""


class Tokens:
    """Compact: one text and one number a token, since a conversation may be long.

    A token without a text has begun a character that a later one completes: they are shown together.

    Args:
        first: position of the first token.
    """

    def __init__(self, first: int, texts: Sequence[str] = ()) -> None:
        self.first = first
        self.text = "".join(texts)
        self._ends = array("Q", accumulate(map(len, texts)))
        self._own: tuple[str, int, range] | None = None
        """(message, length of the text, range) of the last question for the message's own words."""

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, text: str) -> None:
        self.text += text
        self._ends.append(len(self.text))

    def added(self, position: int) -> range | None:
        """The characters that a token adds by itself, perhaps none; None where it is no token of these."""
        at = position - self.first
        if not 0 <= at < len(self._ends):
            return None
        return range(self._ends[at - 1] if at else 0, self._ends[at])

    def span(self, position: int) -> tuple[int, int] | None:
        """(first, behind the last) character with which a token is shown; None where it has none."""
        added = self.added(position)
        if added is None or added.start == len(self.text):
            return None
        return added.start, self._ends[bisect_right(self._ends, added.start)]

    def own_text(self, position: int) -> str:
        """The text that a token adds by itself."""
        added = self.added(position)
        return self.text[added.start : added.stop] if added is not None else ""

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

    def own(self, source: str) -> range:
        """The characters of the message's own words, and of pieces that were recalled between them.

        Some tokenizers change what they read: then all but what looks like a template's.
        """
        if self._own is None or self._own[:2] != (source, len(self.text)):
            self._own = source, len(self.text), self._found(source)
        return self._own[2]

    def _found(self, source: str) -> range:
        for words in (source, source.strip()):
            at = self.text.find(words)
            if at >= 0 and words:
                return range(at, at + len(words))
        begin, end = source.strip()[:BEGIN_CHARACTERS], "".join(source.split()[-1:])[-END_CHARACTERS:]
        start, last = self.text.find(begin), self.text.rfind(end)
        if begin and 0 <= start <= last:  # pieces of it were read once more, before its question
            return range(start, last + len(end))
        texts = [self.own_text(position) for position in range(self.first, self.first + len(self))]
        inner = [at for at, text in enumerate(texts) if text.strip() and not looks_special(text)]
        if not inner:
            return range(0)
        return range(self._ends[inner[0] - 1] if inner[0] else 0, self._ends[inner[-1]])


def looks_special(text: str) -> bool:
    return _SPECIAL.fullmatch(text.strip()) is not None
