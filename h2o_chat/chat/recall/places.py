"""The tokens that a piece of a message is: a long message is tokenised once, not at each question."""

import re
from bisect import bisect_right
from collections.abc import Callable

BLOCK_CHARACTERS = 1000


class Places:
    """How many tokens stand before each place of a text.

    The text is tokenised once, in blocks that end where a word does, if one does; then one block a question.

    Args:
        count: how many tokens a text has.
    """

    def __init__(self, text: str, count: Callable[[str], int]) -> None:
        self._text, self._count = text, count
        self._begins, self._before = [0], [0]
        while self._begins[-1] < len(text):
            begins = self._begins[-1]
            end = text.find(" ", begins + BLOCK_CHARACTERS, begins + 2 * BLOCK_CHARACTERS)
            if end < 0:
                end = min(len(text), begins + 2 * BLOCK_CHARACTERS)
            self._begins.append(end)
            self._before.append(self._before[-1] + count(text[begins : self._begins[-1]]))

    def of(self, words: str, tokens: range) -> range:
        """The tokens that the words are, of those that the text is; all where they are not found.

        Args:
            tokens: positions of the text's tokens; those of the template among them are shared out.
        """
        # Between sentences of a script without spaces there is none, and pieces have one.
        found = re.search(r" ?".join(map(re.escape, words.split())), self._text)
        if found is None or not self._before[-1]:
            return tokens
        before, whole = self._tokens_before(found.start()), self._before[-1]
        stop = -(-(before + self._count(words)) * len(tokens) // whole)
        return tokens[before * len(tokens) // whole : stop]

    def _tokens_before(self, at: int) -> int:
        block = bisect_right(self._begins, at) - 1
        return self._before[block] + self._count(self._text[self._begins[block] : at])
