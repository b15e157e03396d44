"""Which of the things said tells what a question asks for that only the person can know; no model.

It must have enough of the words of the question, and the person must say it of herself, or of what is her
own: the room of "my friend waited in room number 530" is not "my room".
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from h2o_chat.chat.answers import may_answer
from h2o_chat.chat.everyday import WORDS, tells
from h2o_chat.chat.finding import BEGINNING, WORD, Finder, Found, unsaid
from h2o_chat.chat.neighbours import (
    OTHERS,
    Neighbours,
    before,
    neighbours,
    of_self,
    plain,
    same,
    sentence,
    singular,
    spoken,
)
from h2o_chat.chat.personal import MY, NOTHING, I, Wanted, word_set

MOST = 0.75
"""So much of what the words count tells what is wanted, even where nobody says whose it is."""
MORE = 0.6
"""Of what is asked about oneself: where the person speaks of herself."""
SOME = 0.4
"""Where she says that it is she who does it, or whose it is."""
MANY = 3
"""So many of the words are enough, whatever they count: of a long question not all was said."""
SURE = 0.75
"""So much of what the words count stands there as it was asked for: it is no mere neighbour."""
LESS = 0.05
"""What tells less than the best by so much is not meant."""
NEWEST_OF_KIND = 300
"""So many pieces with a word are looked at by expressions, which take longer."""
VALUE = 0.2
"""More tells what names one of the kind that is asked for."""
HALF = 0.5
"""Of the words for what is her own."""
DOES = 2
"""A word for oneself stands so many words before what one does: "I also speak Polish"."""
NEAR_SELF = 5
"""A word for oneself stands so many words before what tells the same as what is asked for."""
NEAR = 4
"""A word for what is one's own stands so many words before it: "my good old dog"."""

_HAVE = word_set("""
have has had got get own bought buy adopted chose made created lost found named lent parked sold put left
hid keep forgot
""")
"""Words by which one has a thing: "I bought a dog"."""
_HAVE_NOT = word_set("been to rather than")
""" "I have been to the dog" tells of no dog."""
_ANOTHER = re.compile(r"\b(?:first|second|third|previous|former)\b(?! (?:name|language|tongue))")
"""Of "my first car" nothing is told by "my car is green"."""
_OF_ANY_KIND = word_set(
    "city place country region hometown people friends line field nickname surname language"
)
"""What is asked for with these is one of the things in `everyday.py`, and no more."""
_APOSTROPHES = ("'", "’")
_KIND = re.compile(r"\b(?:what|which) (\w+) (?:do|did|am|was|have) (?:i|we)\b")
"""What kind of thing is asked for: what does not name one tells nothing."""
_ENDING = re.compile(r"(?:ing|ed|es|s|e)$")
Forms = Mapping[str, Sequence[tuple[str, str]]]
"""By the beginning of a word: (what begins so, the word that it tells the same as)."""


@dataclass(frozen=True)
class _Asked:
    """What is asked for, and what tells it."""

    words: Forms
    counts: Mapping[str, float]
    """By a word: how much it counts."""
    near: Mapping[str, Neighbours]
    mine: Forms
    """The things that are said to be one's own."""
    things: frozenset[str]
    """The same without their forms."""
    must: frozenset[str]
    """Without these nothing tells it."""
    kinds: frozenset[str]
    """Kinds of thing of which one must be named, unless most of the rest is told."""

    def share(self, words: Collection[str]) -> float:
        """How much of it these are, 0 to 1."""
        return _count(words, self.counts) / (sum(self.counts.values()) or 1.0)


@dataclass(frozen=True)
class _Said:
    """A piece of what was said."""

    text: str
    words: Sequence[str]
    spoken: Sequence[str]
    speaks: Sequence[bool]
    """Which of the words are for oneself; "find me a film" tells nothing."""

    @property
    def of_her(self) -> bool:
        """Whether the person speaks of herself."""
        return any(self.speaks)

    @property
    def of_hers(self) -> bool:
        """Whether she speaks of what is her own."""
        return not MY.isdisjoint(self.words)

    @property
    def of_self(self) -> bool:
        """Whether it is about her at all."""
        return self.of_her or self.of_hers

    @property
    def of_others(self) -> bool:
        """Whether it is said whose it is."""
        return self.of_hers or not OTHERS.isdisjoint(self.words)


def told(finder: Finder, question: str, what: Wanted) -> Found | None:
    """Of what was said, what tells this best; None: nothing does."""
    written = " ".join(WORD.findall(question.casefold()))
    asked = _asked(finder, written, what)
    beginnings = set(asked.words).union(*(one.beginnings for one in asked.near.values()))
    some: dict[int, float] = {}
    for at, text in finder.with_any(beginnings):
        if may_answer(written, text) and (share := _tells(asked, _said(plain(text)))):
            some[at] = share
    if what.words == {"age"}:
        some |= {at: 1.0 for at, _ in finder.with_any({unsaid("age")})}
    of_kind = dict(_of_kind(finder, what.kind or ("name" if what.words == {"name"} else "")))
    some |= {at: max(1.0, some.get(at, 0.0)) for at in of_kind}
    most = max(some.values(), default=0.0)
    best = finder.best_of(question, [at for at, share in some.items() if share > most - LESS])
    if best is None:
        return None
    said = WORD.findall(plain(best.text))
    if best.text in of_kind.values():  # "What was I called before I entered the convent?" asks for more
        more = what.words - WORDS[what.kind or "name"] - _OF_ANY_KIND
        return replace(best, sure=not more or bool(_standing(_forms(more), said)))
    exactly = _standing(asked.words, said, exactly=True)
    exactly |= {word for word in asked.counts if not {*singular(word)}.isdisjoint(said)}
    another = {*_ANOTHER.findall(written)} - {*said}
    return replace(best, sure=asked.share(exactly) >= SURE and not another)


def _of_kind(finder: Finder, kind: str) -> Iterator[tuple[int, str]]:
    """Pieces that tell one of the things in `everyday.py`, by their numbers."""
    if kind:
        begins = {word[:BEGINNING] for word in WORDS[kind]} | {unsaid(kind)}
        said = finder.with_any(begins, NEWEST_OF_KIND)
        yield from ((at, text) for at, text in said if tells(kind, text))


def names(text: str, what: Wanted) -> bool:
    """Whether at least half of the words stand in a text."""
    return 2 * len(_standing(_forms(what.words), WORD.findall(text.casefold()))) >= len(what.words)


def _asked(finder: Finder, written: str, what: Wanted) -> _Asked:
    near = {word: neighbours(word) for word in what.words}
    counts = {word: finder.count(word[:BEGINNING]) / (1 + (word in what.half)) for word in what.words}
    kinds = frozenset(word for word in _KIND.findall(written) if word in near and near[word].beginnings)
    mine = _forms(what.mine)
    return _Asked(_forms(what.words), counts, near, mine, frozenset(_words(mine)), what.must, kinds)


def _said(text: str) -> _Said:
    words = WORD.findall(text)
    return _Said(text, words, spoken(text), [word in I and word != "me" for word in words])


def _tells(asked: _Asked, said: _Said) -> float:
    """How much of what is asked for a piece tells, 0 to 1 + VALUE; 0: too little, or not of the person."""
    if not said.of_self and len(asked.counts) == 1:
        return 0.0
    exactly = _standing(asked.words, said.words, exactly=True)
    by_near = {word for word, one in asked.near.items() if said.of_self and one.told_by_self(said.spoken)}
    by_same = _by_same(asked, said) - exactly
    tells = exactly | by_near | by_same
    share = asked.share(tells)
    if said.of_self and len(exactly) >= MANY and exactly >= asked.must:
        return share
    if share < SOME or not tells >= asked.must or (share < MORE and not tells >= asked.kinds):
        return 0.0
    if tells <= asked.must < asked.counts.keys():
        return 0.0  # that she loves her job tells no favourite museum
    if not _is_of_her(asked, said, tells, by_near):
        return 0.0
    named = asked.share({word for word in by_near if asked.near[word].kinds})
    return share + VALUE * named - VALUE / 2 * asked.share(by_same - by_near)


def _by_same(asked: _Asked, said: _Said) -> set[str]:
    """The words that are told by what tells the same, where a person says it of herself, or of nobody."""
    found = _standing(asked.words, said.words)
    if said.of_self:
        free = found if asked.must else found & asked.things
        return {one for one in found if one in free or _self_before(said.spoken, asked.words, one)}
    return set() if said.of_others else found


def _is_of_her(asked: _Asked, said: _Said, tells: Set[str], by_near: Set[str]) -> bool:
    """Whether a piece that tells these words tells them of the person, or of what is her own."""
    share = asked.share(tells)
    if len(asked.counts) > 1 and share >= MOST and (said.of_her or not said.of_others):
        return True
    if not asked.mine:
        if by_near or (share >= MORE and _says_of_self(said.spoken, asked.words)):
            return True
        does = (at for at, word in enumerate(said.words) if _standing(asked.words, [word]))
        return any(any(said.speaks[max(0, at - DOES) : at]) for at in does)
    if tells <= asked.things < asked.counts.keys():
        return False  # that she has an aunt does not tell her aunt's job
    half = HALF * (_count(asked.things, asked.counts) or 1.0)
    if _count(by_near & asked.things, asked.counts) >= half:
        return True
    by_name = _count(_standing(asked.mine, said.words), asked.counts)
    return by_name >= half and _is_own(said.text, asked.mine)


def _says_of_self(said: Sequence[str], wanted: Forms) -> bool:
    """Whether a sentence has one of the words and one for oneself, and is no mere thought."""
    at_all = (at for at, one in enumerate(said) if _standing(wanted, [one]))
    return any(of_self(sentence(said, at)) for at in at_all)


def _self_before(said: Sequence[str], wanted: Forms, word: str) -> bool:
    """Whether what tells the same as a word stands right behind a word for oneself."""
    at_all = (at for at, one in enumerate(said) if word in _standing(wanted, [one]))
    return any(of_self(before(said, at, NEAR_SELF)) for at in at_all)


def _is_own(text: str, mine: Forms) -> bool:
    """Whether a person says of one of these things that it is hers: "my old dog", "I have a dog"."""
    said = list(WORD.finditer(text))
    for at, thing in enumerate(said):
        before = [one[0] for one in said[max(0, at - NEAR) : at]]
        if not _standing(mine, [thing[0]]):
            continue
        # In "my boss's name" the name is not mine, and in "my friend in room 5" the room.
        for one in reversed(said[max(0, at - NEAR) : at]):
            if one[0] in MY:
                return True
            if one[0] in NOTHING or text[one.end() : one.end() + 1] in _APOSTROPHES:
                break
        has = not _HAVE.isdisjoint(before) and _HAVE_NOT.isdisjoint(before)
        if has and any(one[0] in I for one in said[:at]):
            return True
    return False


def _count(words: Collection[str], counts: Mapping[str, float]) -> float:
    return sum(counts.get(word, 0.0) for word in words)


def _forms(words: Collection[str]) -> Forms:
    """The words, and what tells the same and begins otherwise."""
    forms: dict[str, list[tuple[str, str]]] = {}
    for word in words:
        for form in (word, *same().get(word, ())):
            endings = ("", "s", "d", "ed", "ing") if len(form) < BEGINNING else ("",)
            for ending in endings:
                forms.setdefault((form + ending)[:BEGINNING], []).append((form, word))
    return forms


def _words(forms: Forms) -> set[str]:
    return {word for several in forms.values() for _, word in several}


def _standing(forms: Forms, said: Sequence[str], exactly: bool = False) -> set[str]:
    """Those of the words that are said, in whatever form; exactly: not by what begins otherwise."""
    found = ((form, word, one) for one in said for form, word in forms.get(one[:BEGINNING], ()))
    return {word for form, word, one in found if (form[:2] == word[:2] or not exactly) and _alike(form, one)}


def _alike(word: str, other: str) -> bool:
    """Whether two words that begin alike are forms of one: books are no bookshelf, and a train no trainer."""
    short, long = sorted((_ENDING.sub("", word), _ENDING.sub("", other)), key=len)
    return long.startswith(short) and len(long) - len(short) <= 3 and long[len(short) :] not in ("er", "or")
