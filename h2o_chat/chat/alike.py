"""Whether two answers say the same: by the words that follow each other in both."""

import re

GRAM_WORDS = 3
"""Words that follow each other and are compared together."""
ALIKE = 0.8
"""Share of an answer's grams that stand in another one, from which on it says the same."""
_WORD = re.compile(r"\w+")

Grams = frozenset[tuple[str, ...]]


def grams(text: str) -> Grams:
    """Each three words that follow each other; an answer of fewer words is one gram."""
    words = _WORD.findall(text.casefold())
    size = min(GRAM_WORDS, len(words))
    return frozenset(zip(*(words[at:] for at in range(size)), strict=False)) if size else frozenset()


def alike(answer: Grams, earlier: Grams) -> bool:
    """Whether an answer says what an earlier one said."""
    return bool(answer) and len(answer & earlier) >= ALIKE * len(answer)
