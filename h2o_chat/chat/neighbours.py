"""Words that tell what another word asks for: "dog" tells a pet, "I teach" a job; no model.

Two files. `neighbours.txt` was written by hand: how people ask for what one tells of oneself, and how they
tell it. `kinds.txt` was made from WordNet (`tools/make_kinds.py`): which words name an animal, a fruit, a
trade. Word vectors were tried and found too much that was not meant (docs/LOG.md).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

from h2o_chat.chat.finding import BEGINNING, WORD
from h2o_chat.chat.personal import MY, I

TABLES = Path(__file__).with_name("neighbours.txt")
KINDS = TABLES.with_name("kinds.txt")

NEAR = 5
FAR = 6
"""Words between one for oneself, and what one tells; and where it stands how it is told."""
_SHORT = (
    ("’", "'"),
    ("i'm ", "i am "),
    ("'re ", " are "),
    ("'ve ", " have "),
    ("can't ", "cannot "),
    ("don't ", "never "),
    ("never know", "know"),
    ("feel like", "feel"),
    ("'d like", " want"),
    ("would like", "want"),
    (" to work", " commute"),
    (" reach me ", " reach my phone or email "),
    (" call me on ", " call my phone on "),
    (" text me on ", " text my phone on "),
    ("write to me ", "write to my email "),
    ("hitched", "married"),
    ("gave up ", "stopped "),
    ("given up ", "stopped "),
)
_SPOKEN = re.compile(rf"[.!?;]+(?=\s|$)|{WORD.pattern}")


_STOPS = ".!?;"
OTHERS = frozenset(("your", "his", "her", "their"))
_SELF = I | MY


@dataclass(frozen=True)
class Neighbours:
    """What tells a word."""

    words: frozenset[str]
    kinds: tuple[tuple[frozenset[str], frozenset[str]], ...]
    """(how it is said: one of these stands before it, or nothing need; the words of the kind)."""
    beginnings: frozenset[str]
    """Of all these and their plurals, as far as they are compared."""

    def told_by_self(self, said: Sequence[str]) -> bool:
        """Whether one of them stands there, and right before it a word for oneself.

        Args:
            said: as `spoken` makes it.
        """
        for at, word in enumerate(said):
            if word[:BEGINNING] not in self.beginnings:
                continue
            if word in self.words and of_self(before(said, at, NEAR)):
                return True
            for how, members in self.kinds:
                if members.isdisjoint(singular(word)):
                    continue
                if how is hows()["like"]:
                    around = sentence(said, at)
                    if not how.isdisjoint(around) and not _SELF.isdisjoint(around):
                        return True
                elif (not how or not how.isdisjoint(before(said, at, NEAR))) and of_self(
                    before(said, at, FAR)
                ):
                    return True
        return False


def plain(text: str) -> str:
    """In small letters, with "I'm" as two words, and without "feel like", which likes nothing."""
    text = text.casefold()
    for short, long in _SHORT:
        text = text.replace(short, long)
    return text


def spoken(text: str) -> list[str]:
    """The words, with a dot between sentences."""
    return _SPOKEN.findall(text)


def before(said: Sequence[str], at: int, near: int) -> Sequence[str]:
    """So many words right before one, of its sentence, back to a word for what is another's.

    None where somebody only thinks of it.
    """
    nearest = reversed(said[max(0, at - near) : at])
    found = list(takewhile(lambda one: one[0] not in _STOPS and one not in OTHERS, nearest))
    return [] if not _only().isdisjoint(found) else found


def sentence(said: Sequence[str], at: int) -> Sequence[str]:
    """The words of its sentence; none where somebody only thinks of it."""
    after = list(takewhile(lambda one: one[0] not in _STOPS, said[at:]))
    before = list(takewhile(lambda one: one[0] not in _STOPS, reversed(said[:at])))
    return [] if not _only().isdisjoint([*before, *after]) else [*before, *after]


def of_self(words: Sequence[str]) -> bool:
    """Whether one of them is for oneself."""
    return any((word in I and word != "me") or word in MY for word in words)


@cache
def _tables() -> dict[str, list[str]]:
    """The lines of `neighbours.txt` by section."""
    found: dict[str, list[str]] = {}
    for line in TABLES.read_text("utf-8").splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            section.append(line)
    return found


def _sets(lines: Iterable[str]) -> dict[str, frozenset[str]]:
    """Lines "name: words"."""
    return {name: frozenset(words.split()) for name, _, words in (line.partition(": ") for line in lines)}


@cache
def same() -> dict[str, frozenset[str]]:
    """Words that tell the same as another, and begin otherwise."""
    return _sets(_tables()["same"])


@cache
def told_by() -> dict[str, str]:
    """By what is asked for: what tells it."""
    table: dict[str, str] = {}
    for line in _tables()["told by"]:
        asked, _, told = line.partition(": ")
        for word in asked.split():
            table[word] = f"{table.get(word, '')} {told}".strip()
    return table


@cache
def hows() -> dict[str, frozenset[str]]:
    """By its sign: one of which words stands before a word of a kind; nothing need without a sign."""
    return _sets(_tables()["how"]) | {"": frozenset()}


@cache
def kinds() -> dict[str, frozenset[str]]:
    """By a kind: its words, and its name."""
    found = _sets(KINDS.read_text("utf-8").splitlines())
    return {kind: words | {kind} for kind, words in found.items()} | _sets(_tables()["words"])


@cache
def _only() -> frozenset[str]:
    """Where one of these stands, somebody only thinks of it."""
    return frozenset(" ".join(_tables()["only thought of"]).split())


@cache
def neighbours(word: str) -> Neighbours:
    """What tells it, beside the word itself."""
    table = told_by()
    parts = next((table[one] for one in singular(word) if one in table), "").split()
    words = frozenset(one for one in parts if "~" not in one)
    told = [one.partition("~") for one in parts if "~" in one]
    of_kinds = tuple((hows()[how], kinds()[kind]) for how, _, kind in told)
    every = words.union(*(members for _, members in of_kinds))
    beginnings = {(one + ending)[:BEGINNING] for one in every for ending in ("", "s", "es")}
    return Neighbours(words, of_kinds, frozenset(beginnings))


def singular(word: str) -> tuple[str, ...]:
    """The word, and what it may be the plural of: mangoes, mango."""
    forms = [word]
    if word.endswith("s") and len(word) > 3:
        forms.append(word[:-1])
        if word.endswith("es"):
            forms.append(word[:-2])
        if word.endswith("ies"):
            forms.append(word[:-3] + "y")
    return tuple(forms)
