"""Which of the things said before a question asks for, by its words; no model.

A word counts the more, the fewer pieces of what was said it stands in (the idf of BM25, Robertson and
Zaragoza 2009). Words near each other count once more as a pair: "my dog" is not "the dog of my neighbour". Of
long words only the beginning is compared (McNamee and Mayfield 2004), so that `colour` finds `colours`.
Scripts that are written without spaces are compared letter by letter, with their neighbours.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import log

from h2o_chat.chat.asking import PIECE_CHARACTERS, asks_only, sentences
from h2o_chat.chat.everyday import BEGINS

BEGINNING = 5
"""Letters of a word that are compared."""
APART = 2
"""Words so far apart, and nearer, are a pair."""
WORDS = 0.4
PAIRS = 0.16
"""A piece answers a question if so much of the question's words, and of its pairs, stands in it."""
BEST = 8
"""So many are told."""
COMMON = 100
FEW = 5
"""A word is rare that stands in at most one of so many pieces, or in so few."""
NEWEST = 2000
"""So many pieces with a word are looked at where it may be a common one."""
WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|(?<!['’])\w+")
"""A letter of a script without spaces (Thai, Lao, Burmese, Khmer, kana, Chinese), or a word; what follows an
apostrophe is none: "what's" is "what"."""
_GOES_ON = re.compile(
    r"(?:and |but |so |then |well,? )?(?:he|she|it|they|him|her|his|its|their|that|this|these|those|there"
    r"|er|sie|es|das|sein\w*|ihr\w*|ils?|elles?|ça|ce|son|sa|ses|él|ella|eso|lui|lei"
    r"|он|она|оно|они|это|его|её|их)\b|[他她它这那]",
    re.I,
)
"""A sentence that speaks of the one before."""
TELLS = {
    **BEGINS,
    "age": re.compile(r"\b(?i:i['’]?m|i am|i was|i (?:have )?turned|ich bin|j['’]ai|tengo|мне) \d"),
}
"""How people tell these without the word."""
_SELF = """
i me my mine we us our ours · ich mich mir mein meine wir uns unser · je me moi mon ma mes nous notre nos
yo mi mis nosotros nuestro nuestra · io mio mia miei noi nostro nostra · eu meu minha · ik mij mijn wij ons
onze jag mig min mitt mina vi · jeg meg · ja moj moja mnie · я меня мне мой моя мое мои мы нас наш
我 私 僕 俺 · 나 내 저 제 우리 · मैं मेरा मेरी · أنا
"""
SELF = frozenset(word[:BEGINNING] for word in _SELF.replace("·", " ").split())
"""Words by which people speak of themselves, in some languages, as far as they are compared."""

Feature = str | tuple[str, ...]
"""A word; two words near each other; two neighbours, with an empty third."""


@dataclass(frozen=True)
class Found:
    """Something said before, and how much of a question stands in it: 0 to 1, by what each word counts."""

    index: int
    """The place of its message in the conversation."""
    text: str
    words: float
    pairs: float
    sure: bool = True
    """Whether it answers as far as words can tell; False: it is only the nearest."""

    @property
    def fits(self) -> bool:
        """Whether it is likely to answer the question."""
        return self.words >= WORDS and self.pairs >= PAIRS


class Finder:
    """The words of what was said. A message takes the time of its words, a question that of the pieces
    which share a rare one with it."""

    def __init__(self) -> None:
        self._pieces: list[tuple[int, str]] = []
        """(place of the message, text), in the order in which they were said."""
        self._asking: set[int] = set()
        """Those that ask: they tell nothing."""
        self._where: dict[Feature, list[int]] = {}
        """The pieces in which a word, or a pair, stands."""

    def add(self, index: int, text: str) -> None:
        """Takes a message in; `index` is larger than all before."""
        for piece, asking in pieces(text):
            if asking:
                self._asking.add(len(self._pieces))
            tells = (unsaid(what) for what, telling in TELLS.items() if telling.search(piece))
            for feature in (*_words_and_pairs(piece), *tells):
                self._where.setdefault(feature, []).append(len(self._pieces))
            self._pieces.append((index, piece))

    def find(self, question: str, rare_words: int = 0) -> list[Found]:
        """What shares rare words with it and is no question itself, best first; of those as good the later.

        Args:
            rare_words: so many must be shared. 0: one, if the question is about who asks it, else two. Common
                ones would bring "I'm doing fine" for "How are you?".
        """
        asked = _words_and_pairs(question)
        best = self._best(asked, self._with(asked, rare_words or (1 if asked & SELF else 2)))
        return list(islice(best, BEST))

    def best_of(self, question: str, some: Collection[int]) -> Found | None:
        """Of some pieces, by their numbers, the one that fits a question best."""
        return next(self._best(_words_and_pairs(question), sorted(some)), None)

    def with_any(self, words: Collection[str], newest: int = NEWEST) -> Iterator[tuple[int, str]]:
        """What is said, no question, with one of these words, by their beginnings: its number, and the text.

        Of each word so many of the newest pieces alone.
        """
        for at in {at for word in words for at in self._where.get(word, [])[-newest:]}:
            if at not in self._asking:
                yield at, self._pieces[at][1]

    def count(self, word: Feature) -> float:
        """How much it counts: the more, the fewer pieces it stands in.

        What was never said counts as what was said once: "where" may not have been asked before.
        """
        return log((len(self._pieces) + 1) / (max(1, len(self._where.get(word, []))) + 0.5))

    def _best(self, asked: set[Feature], some: Sequence[int]) -> Iterator[Found]:
        """Some pieces, the one first that fits best what is asked; of those as good the later."""
        words = self._shared({one for one in asked if isinstance(one, str)}, some)
        pairs = self._shared({one for one in asked if len(one) == 2 and isinstance(one, tuple)}, some)
        # "my name" stands in "my boss's name" too, but not side by side.
        beside = self._shared({one for one in asked if len(one) == 3 and isinstance(one, tuple)}, some)
        fits = {at: round(words[at] + pairs[at] + beside[at], 6) for at in some}
        ranked = sorted(some, key=lambda at: (fits[at], at), reverse=True)
        return (Found(*self._pieces[at], words[at], pairs[at]) for at in ranked)

    def _with(self, asked: set[Feature], rare_words: int) -> list[int]:
        """The pieces in which so many of these words stand that are rare, those left out that ask."""
        rare = max(FEW, len(self._pieces) // COMMON)
        standing = (self._where.get(one, []) for one in asked if isinstance(one, str))
        shared = Counter(at for where in standing if len(where) <= rare for at in where)
        return sorted(at for at, words in shared.items() if words >= rare_words and at not in self._asking)

    def _shared(self, asked: set[Feature], some: Sequence[int]) -> dict[int, float]:
        """Of each of some pieces, which share of these stand in it, by what they count."""
        shared = dict.fromkeys(some, 0.0)
        counts = {one: self.count(one) for one in asked}
        of = sum(counts.values()) or 1.0
        for one, idf in counts.items():
            where = self._where.get(one, [])
            for at in some:
                found = bisect_left(where, at)
                if found < len(where) and where[found] == at:
                    shared[at] += idf / of
        return shared


def unsaid(what: str) -> str:
    """What stands, beside its words, for a piece that tells this without the word."""
    return f"({what})"


def pieces(text: str) -> Iterator[tuple[str, bool]]:
    """What is found at once, and whether it asks: all of it, or nothing.

    A message of PIECE_CHARACTERS is one piece, but for what it asks. Of a longer one, as of a page that was
    pasted, each sentence is one: others beside it are misread by small models. What says "he" or "it" of
    the sentence before stays with that.
    """
    said = list(sentences(text))
    page = sum(map(len, said)) + len(said) - 1 > PIECE_CHARACTERS
    joined, asking = "", False
    for sentence in said:
        one_asks = asks_only(sentence)
        apart = asking != one_asks or (page and _GOES_ON.match(sentence) is None)
        if joined and (apart or len(joined) + 1 + len(sentence) > PIECE_CHARACTERS):
            yield joined, asking
            joined = ""
        joined, asking = f"{joined} {sentence}".strip(), one_asks
    if joined:
        yield joined, asking


def _words_and_pairs(text: str) -> set[Feature]:
    """Words, each by its beginning, and those that follow each other, or with one word between them."""
    words = [word[:BEGINNING] for word in WORD.findall(text.casefold())]
    return {*words, *_pairs(words)}


def _pairs(words: list[str]) -> Iterator[tuple[str, ...]]:
    for at, word in enumerate(words):
        for other in words[at + 1 : at + 1 + APART]:
            yield word, other
        for other in words[at + 1 : at + 2]:
            yield word, other, ""
