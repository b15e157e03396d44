"""An index of what was said: which pieces share words with a question. No list of words, and no model but for
its tokenizer, which tells how rare a word is in its language.

A word counts more, the fewer pieces it stands in (the idf of BM25, Robertson and Zaragoza 2009) and the rarer
it is in its language. What pages or the model say does not make the user's words common. Two words near each
other count once more as a pair: "my dog" is not "the dog of my neighbour". Only the beginning of a long word
is compared (McNamee and Mayfield 2004), so that `colour` finds `colours`. Case, accents and hyphens are
folded: `wifi` finds `Wi-Fi`. Scripts without spaces are compared letter by letter, with their neighbours.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log, prod

from h2o_chat.chat.conversation.sentences import PAGE_CHARACTERS, asked_from, pieces_of

BEGINNING_LETTERS = 5
"""Letters of a word that are compared."""
NEAR_WORDS = 2
"""Words at most this far apart are a pair."""
RARE_PIECES, RARE_SHARE = 5, 0.002
"""A word is rare if it stands in at most so many pieces of the user, or in at most this share of them."""
PAGE_SHARED, PAIR = 2.0, 0.5
"""In a book few words are rare. All pieces of pages are found if one of them shares with the question as much
as PAGE_SHARED words, by their idf, that stand in one piece alone; a pair counts PAIR of that. More must be
shared where words of the question stand in no page."""
RARITY = 1.5
"""A word's weight is multiplied by its rarity in the language over the usual rarity of what is said, to the
power RARITY: "today" may stand in a story once, as "sunbonnet" does. In a page that decides only whether the
question is about it."""
SAMPLE_CHARACTERS, SAMPLE_WORDS = 4000, 100
"""The beginning of what is said, and the words of it that tell the usual rarity: 10 ms of a tokenizer."""
NEIGHBOUR, FOLLOWING = 0.2, 0.7
"""Share of the better neighbour's score that a piece of a page gets: a story names somebody once, and then
says what he did. It gets at least the second share of the score of the piece before it: there the answer may
stand."""
ANSWERS = 0.5
"""A piece of an answer counts this much of a piece that the user said."""
LEAST_WORDS = 3
"""A shorter question is weighed as if it had so many words that nobody said: "Hello?" finds nothing."""

_WORD = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]|\w+")
"""A letter of a script without spaces (Thai, Lao, Burmese, Khmer, kana, Chinese), or a word."""
_HYPHENATED = re.compile(r"\w+(?:[-\u2010\u2011]\w+)+")
Feature = str | tuple[str, str]
"""A word, or two words near each other."""
Rarity = Callable[[str], float]
"""How rare the words of a text are in their language, in any unit, added up."""


@dataclass(frozen=True)
class Piece:
    message: int
    text: str
    user: bool
    """Said by the user, not by the model."""
    page: bool = False
    """Part of a message of more than PAGE_CHARACTERS."""


@dataclass(frozen=True)
class Hit:
    """A piece that shares a rare word with a question."""

    number: int
    """The piece's number, in the order in which they were said."""
    piece: Piece
    score: float
    """Share of the question's words that it contains, by their weights, and the same of its pairs: 0 to 2."""


@dataclass
class Part:
    """The pieces of the user, of the model, or of pages."""

    numbers: list[int] = field(default_factory=list)
    where: dict[Feature, list[int]] = field(default_factory=dict)
    """Numbers of the pieces in which a feature stands."""
    sample: str = ""
    """The beginning of what they say."""
    usual: float | None = None
    """The mean rarity of its words; None: not computed since it grew."""

    def is_rare(self, word: str) -> bool:
        return len(self.where.get(word, ())) <= max(RARE_PIECES, RARE_SHARE * len(self.numbers))


class Index:
    """The pieces of a conversation, by their words.

    Args:
        rarity: see `rarity_of`; without a tokenizer the number of letters will do.
    """

    def __init__(self, rarity: Rarity = len) -> None:
        self.pieces: list[Piece] = []
        self._rarity = rarity
        self._user, self._model, self._pages = Part(), Part(), Part()
        self._answered: set[str] = set()
        """Pieces of the model: one that it repeats is taken in once."""

    def add(self, message: int, text: str, user: bool) -> None:
        """Takes in what a message tells; `message` is larger than all before."""
        asked, page = asked_from(text), len(text) > PAGE_CHARACTERS
        part = self._pages if page else self._user if user else self._model
        if (room := SAMPLE_CHARACTERS - len(part.sample)) > 0:
            part.sample, part.usual = f"{part.sample} {text[:room]}", None
        for piece in (*pieces_of(text[:asked], questions=True), *pieces_of(text[asked:])):
            found = features(piece)
            if not found or (not user and piece in self._answered):  # a line of dashes has no words
                continue
            for feature in found:
                part.where.setdefault(feature, []).append(len(self.pieces))
            part.numbers.append(len(self.pieces))
            self.pieces.append(Piece(message, piece, user, page))
            if not user:
                self._answered.add(piece)

    def find(self, question: str, about_page: bool = False) -> list[Hit]:
        """The pieces that share a rare word with a question, best first; newer ones win ties.

        Args:
            about_page: the question is surely about the page.
        """
        asked = sorted(features(question), key=str)  # sums do not depend on the order of a set
        user, model, pages = self._user, self._model, self._pages
        rare = [one for one in asked if isinstance(one, str) and user.is_rare(one)]
        found_in = ((part, one) for part in (user, model) for one in rare if part.is_rare(one))
        talk = {number for part, one in found_in for number in part.where.get(one, ())}
        weights = _weights(asked, self._idf_in_talk, self._rarities(question, user))
        score = _scores(talk, weights, (user, model))
        if pages.numbers and (about_page or self._shared_with_pages(question, asked) >= PAGE_SHARED):
            score |= _scores(pages.numbers, _weights(asked, self._idf_everywhere, {}), (pages,))
        hits = [Hit(number, self.pieces[number], self._whole_score(score, number)) for number in score]
        found = [hit for hit in hits if hit.score > 0]
        return sorted(found, key=lambda hit: (round(hit.score, 6), hit.number), reverse=True)

    def _shared_with_pages(self, question: str, asked: Sequence[Feature]) -> float:
        """How much of a question stands in one piece of a page, see PAGE_SHARED."""
        pages, rarity = self._pages, self._rarities(question, self._pages)
        weights = {one: factor(one, rarity) * self._idf_everywhere(one) for one in asked}
        words = {one: weight for one, weight in weights.items() if isinstance(one, str)}
        known = sum(weight for one, weight in words.items() if one in pages.where)
        counted = {one: weight if one in words else PAIR * weight for one, weight in weights.items()}
        most = max(_scores(pages.numbers, counted, (pages,)).values())
        return most * known / max(sum(words.values()), 1e-9) / self._idf_everywhere("")

    def _idf_in_talk(self, feature: Feature) -> float:
        """The idf among the user's pieces; among the model's, where it alone has said it."""
        by_user, by_model = (len(one.where.get(feature, ())) for one in (self._user, self._model))
        pieces = len(self._user.numbers)
        if by_model and not by_user:
            pieces = max(pieces, len(self._model.numbers))
        return idf(by_user or by_model, max(1, pieces))

    def _idf_everywhere(self, feature: Feature) -> float:
        parts = (self._user, self._model, self._pages)
        return idf(sum(len(one.where.get(feature, ())) for one in parts), len(self.pieces))

    def _rarities(self, question: str, part: Part) -> dict[str, float]:
        """The rarity of the question's words over that of a part's words, by their beginnings."""
        if part.usual is None:
            words = _WORD.findall(part.sample.casefold())
            some = words[:: len(words) // SAMPLE_WORDS + 1]
            part.usual = sum(map(self._rarity_of_word, some)) / max(1, len(some))
        found = dict[str, float]()
        for word in _words_of(question) if part.usual else ():
            for letters in (pieces := _WORD.findall(fold(word))):
                rarity = self._rarity_of_word(word if len(pieces) == 1 else letters) / part.usual
                beginning = letters[:BEGINNING_LETTERS]
                found[beginning] = min(rarity, found.get(beginning, rarity))
        return found

    def _rarity_of_word(self, word: str) -> float:
        return min(self._rarity(word), self._rarity(f" {word}"))  # in a text most begin with a space

    def _whole_score(self, score: dict[int, float], number: int) -> float:
        piece, whole = self.pieces[number], score[number]
        if piece.page:
            before, behind = (
                score[other] if other in score and self.pieces[other].message == piece.message else 0.0
                for other in (number - 1, number + 1)
            )
            whole = max(whole + NEIGHBOUR * max(before, behind), FOLLOWING * before)
        return whole if piece.user else ANSWERS * whole


def idf(stands_in: int, pieces: int) -> float:
    """The idf of what stands in so many of so many pieces; 0 counts as 1."""
    return max(0.0, log((pieces + 1) / (max(1, stands_in) + 0.5)))


def factor(feature: Feature, rarity: Mapping[str, float]) -> float:
    """The factor of a weight, by the rarity of the word; for a pair the geometric mean of both."""
    words = (feature,) if isinstance(feature, str) else feature
    return float(prod(rarity.get(one, 1.0) for one in words) ** (RARITY / len(words)))


def _weights(
    asked: Iterable[Feature], idf_of: Callable[[Feature], float], rarity: Mapping[str, float]
) -> dict[Feature, float]:
    """The weights of words as shares of all words of a question, those of pairs as shares of all pairs."""
    weights = {one: idf_of(one) ** 2 * factor(one, rarity) for one in asked}
    words = sum(weight for one, weight in weights.items() if isinstance(one, str))
    whole = {True: words, False: sum(weights.values()) - words}
    least = LEAST_WORDS * idf_of("") ** 2  # of words that nobody said
    return {one: weight / max(whole[isinstance(one, str)], least) for one, weight in weights.items()}


def _scores(
    numbers: Iterable[int], weights: Mapping[Feature, float], parts: Iterable[Part]
) -> dict[int, float]:
    """The scores of pieces: the weights of the features that stand in them."""
    score = dict.fromkeys(sorted(numbers), 0.0)
    for part in parts:
        for feature, weight in weights.items():
            for number in _in_both(part.where.get(feature, []), score):
                score[number] += weight
    return score


def _in_both(where: list[int], score: dict[int, float]) -> list[int]:
    """The numbers that both have; the shorter of them is gone through, since a conversation may be long."""
    if len(where) <= len(score):
        return [number for number in where if number in score]
    places = ((number, bisect_left(where, number)) for number in score)
    return [number for number, at in places if at < len(where) and where[at] == number]


def features(text: str) -> set[Feature]:
    """The words of a text, each by its beginning, and its pairs of near words."""
    plain = fold(text)
    words = [word[:BEGINNING_LETTERS] for word in _WORD.findall(plain)]
    joined = {re.sub(r"\W", "", one[0])[:BEGINNING_LETTERS] for one in _HYPHENATED.finditer(plain)}
    pairs = {(word, other) for at, word in enumerate(words) for other in words[at + 1 : at + 1 + NEAR_WORDS]}
    return {*words, *joined, *pairs}


def rarity_of(ids: Sequence[int]) -> float:
    """How rare the words of a text are in their language, added up, by the ids of its tokens.

    Byte-pair encoding (Sennrich et al. 2016) numbers common pieces first, and cuts rare words into several.
    """
    return sum(log(1 + one) for one in ids)


def _words_of(text: str) -> list[str]:
    """The words of a text with their accents and vowel signs, which `_WORD` does not know."""
    spaced = (
        one if one.isalnum() or one == "_" or unicodedata.category(one)[0] == "M" else " "
        for one in text.casefold()
    )
    return "".join(spaced).split()


def fold(text: str) -> str:
    """A text without case, accents and forms of letters that differ only in how they look."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in plain if not unicodedata.category(letter).startswith("M"))
