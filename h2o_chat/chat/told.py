"""Which of the things said tells what a question asks for that only the person can know; no model.

It must have enough of the words of the question, and the person must say it of herself, or of what is her
own: the room of "my friend waited in room number 530" is not "my room".
"""

import re
from collections.abc import Collection, Mapping, Sequence

from h2o_chat.chat.finding import BEGINNING, TELLS, WORD, Finder, Found, unsaid
from h2o_chat.chat.personal import MY, NOTHING, I, Wanted, word_set

MOST = 0.75
"""So much of what the words count tells what is wanted, even where nobody says whose it is."""
MORE = 0.6
"""Of what is asked about oneself: where the person speaks of herself."""
SOME = 0.4
"""Where she says that it is she who does it, or whose it is."""
HALF = 0.5
"""Of the words for what is her own."""
DOES = 2
"""A word for oneself stands so many words before what one does: "I also speak Polish"."""
NEAR = 4
"""A word for what is one's own stands so many words before it: "my good old dog"."""

_HAVE = word_set("""
have has had got get own bought buy adopted chose made created lost found named lent parked sold
""")
"""Words by which one has a thing: "I bought a dog"."""
_HAVE_NOT = word_set("been to rather than")
""" "I have been to the dog" tells of no dog."""
_OTHERS = word_set("his her their your")
_APOSTROPHES = ("'", "’")
_ENDING = re.compile(r"(?:ing|ed|es|s|e)$")
_SAME = """
buy bought · study studied · spend spent · leave left · meet met · lend lent · choose chose · teach taught
drive drove car · write wrote · eat ate · drink drank · wear wore · sell sold · grow grew · lose lost
win won · find found · keep kept · build built · send sent · see saw · watch saw watched · fly flew · get got
pay paid spent cost · age years born · birthday born · job work works working · occupation work job · work job
live moved address home · address live · married wife husband · wife married · husband married
children kids son daughter · phone mobile · mother mum mom · father dad · wedding married marry
"""
SAME = {
    word: others
    for line in _SAME.strip().splitlines()
    for word, *others in (group.split() for group in line.split("·"))
}
"""Words that tell the same as another, and begin otherwise."""

Forms = Mapping[str, Sequence[tuple[str, str]]]
"""By the beginning of a word: (what begins so, the word that it tells the same as)."""


def told(finder: Finder, question: str, what: Wanted) -> Found | None:
    """Of what was said, what tells this best; None: nothing does."""
    words, mine = _forms(what.words), _forms(what.mine)
    counts = {word: finder.count(word[:BEGINNING]) / (1 + (word in what.half)) for word in what.words}
    some = {at for at, text in finder.with_any(words) if _tells(text.casefold(), words, mine, counts)}
    if len(what.words) == 1:
        some |= {at for at, _ in finder.with_any({unsaid(one) for one in what.words & TELLS.keys()})}
    return finder.best_of(question, some)


def names(text: str, what: Wanted) -> bool:
    """Whether at least half of the words stand in a text."""
    return 2 * len(_standing(_forms(what.words), WORD.findall(text.casefold()))) >= len(what.words)


def _tells(text: str, wanted: Forms, mine: Forms, counts: Mapping[str, float]) -> bool:
    words = WORD.findall(text)
    standing = _standing(wanted, words)
    share = _count(standing, counts) / (sum(counts.values()) or 1.0)
    speaks = [word in I and word != "me" for word in words]  # "find me a film" tells nothing
    of_self, own = any(speaks), not MY.isdisjoint(words)
    if len(counts) > 1 and share >= MOST and (of_self or (not own and _OTHERS.isdisjoint(words))):
        return True
    if mine:
        half = HALF * (_count(_words(mine), counts) or 1.0)
        return share >= SOME and _count(_standing(mine, words), counts) >= half and _is_own(text, mine)
    if share >= MORE:
        return of_self or own
    does = (any(speaks[max(0, at - DOES) : at]) for at, word in enumerate(words) if _standing(wanted, [word]))
    return share >= SOME and any(does)


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
        for form in (word, *SAME.get(word, ())):
            endings = ("", "s", "d", "ed", "ing") if len(form) < BEGINNING else ("",)
            for ending in endings:
                forms.setdefault((form + ending)[:BEGINNING], []).append((form, word))
    return forms


def _words(forms: Forms) -> set[str]:
    return {word for several in forms.values() for _, word in several}


def _standing(forms: Forms, said: Sequence[str]) -> set[str]:
    """Those of the words that are said, in whatever form."""
    return {word for one in said for form, word in forms.get(one[:BEGINNING], ()) if _alike(form, one)}


def _alike(word: str, other: str) -> bool:
    """Whether two words that begin alike are forms of one: books are no bookshelf, and a train no trainer."""
    short, long = sorted((_ENDING.sub("", word), _ENDING.sub("", other)), key=len)
    return long.startswith(short) and len(long) - len(short) <= 3 and long[len(short) :] not in ("er", "or")
