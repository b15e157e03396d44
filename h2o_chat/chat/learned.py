"""How likely an English sentence asks for what only the person can have told: learned from examples.

Each word, each pair of neighbours and each pair further apart has a weight; they are added (logistic
regression; most weights are nothing). `learned.txt` has them, a line each, written by
`tools/train_personal.py`. Of other languages nothing was learned: it says "unlikely".
"""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache, lru_cache
from itertools import dropwhile, pairwise
from pathlib import Path

TABLE = Path(__file__).with_name("learned.txt")
APART, FAR = 4, 20
"""Two words less than APART from each other are a pair "what~dog", less than FAR a pair "what~~called"."""
BEGINS, ENDS, OTHER = "^", "$", "*"
"""Stand for the two ends of a sentence, and for a word of which nothing was learned."""
ALWAYS = "="
"""A weight of every sentence."""
_FIRST = (
    "and",
    "but",
    "so",
    "then",
    "well",
    "oh",
    "hey",
    "hi",
    "hello",
    "ok",
    "okay",
    "please",
    "now",
    "um",
    "sorry",
)
_LAST = ("sorry", "thanks")
_WORD = re.compile(r"\w+")


@lru_cache(1024)
def personal(sentence: str) -> float:
    """Log-odds: above 0 it is more likely than not."""
    weights, known = _table()
    return weights[ALWAYS] + sum(weights.get(one, 0.0) for one in set(features(words(sentence), known)))


def words(sentence: str) -> list[str]:
    """In small letters, without how one begins and ends to speak; "what's" and "whats" are one."""
    said = _WORD.findall(sentence.casefold().replace("'", "").replace("’", ""))
    while said and said[-1] in _LAST:
        said.pop()
    return list(dropwhile(_FIRST.__contains__, said))


def features(said: Sequence[str], known: Collection[str]) -> Iterator[str]:
    """What has a weight: "my", "my dog", "what~dog", "what~~called".

    Args:
        known: other words are all the same.
    """
    row = [BEGINS, *(word if word in known else OTHER for word in said), ENDS]
    yield from row
    yield from (f"{one} {other}" for one, other in pairwise(row))
    for at, one in enumerate(row):
        yield from (f"{one}~{other}" for other in row[at + 2 : at + APART])
        yield from (f"{one}~~{other}" for other in row[at + APART : at + FAR])


@cache
def _table() -> tuple[dict[str, float], frozenset[str]]:
    """The weights, and the words in them."""
    rows = (line.rpartition("\t") for line in TABLE.read_text("utf-8").splitlines())
    weights = {feature: float(weight) for feature, _, weight in rows}
    return weights, frozenset(word for feature in weights for word in re.split(" |~+", feature))
