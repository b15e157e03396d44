"""The words that are still held, and those that were just forgotten. The cost depends on what is held."""

from bisect import bisect_right, insort
from dataclasses import dataclass
from heapq import nlargest

from h2o_chat.base.glyphs import heads
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.chat.memory.cache_view import CacheView, Kind
from h2o_chat.chat.memory.words import Word

LISTED = 64
LOOKED = 512
"""Tokens of a message that are searched for words, those that most heads hold: a book is one message."""


MESSAGES, WORDS = 12, 8
"""Messages that `in_lines` lists, and words of each: nobody listens to more."""


@dataclass(frozen=True)
class HeldWord:
    word: Word
    hold: float
    """Hold of its least held token."""
    kind: Kind


@dataclass(frozen=True)
class Phrase:
    """Neighbouring words that are forgotten."""

    text: str
    first: int
    last: int
    index: int
    seen: int
    """Tokens seen when the last of them was forgotten."""


def remembered(memory: CacheView, most: int = LISTED) -> list[HeldWord]:
    """The words that are held for another reason than being new, the oldest message first.

    In each message the words that most heads hold come first, each word once. Pinned words follow behind all
    others, and the system prompt is left out: neither can be evicted. Before the first eviction: all words.
    """
    bound = memory.recent_from if memory.evicted else memory.seen
    old = sorted(position for position in memory.hold if position < bound)
    found: list[HeldWord] = []
    pinned: list[HeldWord] = []
    at = 0
    while at < len(old) and len(found) < most:
        span = memory.span(old[at])
        end = bisect_right(old, span.last, at) if span else at + 1
        if span and span.role != "system":
            for held in _of_message(memory, old[at:end], most):
                (pinned if held.kind == "S" else found).append(held)
        at = end
    return (found + pinned)[:most]


def _of_message(memory: CacheView, positions: list[int], most: int) -> list[HeldWord]:
    best: dict[str, HeldWord] = {}
    tried: set[int] = set()
    least: list[float] = []
    """The negated holds found, the largest hold first."""
    for position in nlargest(LOOKED, positions, key=lambda position: memory.hold[position]):
        if len(least) >= most and memory.hold[position] <= -least[most - 1]:
            break  # a word is held as its least held token
        word = memory.word(position)
        if word is None or word.first in tried:
            continue
        tried.add(word.first)
        hold, same = memory.hold_of(word), best.get(word.text.lower())
        if hold > 0 and (same is None or hold > same.hold):
            best[word.text.lower()] = HeldWord(word, hold, memory.kind(word.first))
            insort(least, -hold)
    return sorted(best.values(), key=lambda held: (-held.hold, held.word.first))[:most]


def forgotten(memory: CacheView) -> list[Phrase]:
    """The words in the log of evictions, neighbours in one phrase, the newest first.

    A word is forgotten as soon as one of its tokens has left the last cache.
    """
    words: dict[int, tuple[Word, int]] = {}
    for went in memory.evictions:
        if word := memory.words.at(went.token.position, went.token.text):
            words.setdefault(word.first, (word, went.seen))
    phrases: list[Phrase] = []
    for _, (word, seen) in sorted(words.items()):
        before = phrases[-1] if phrases else None
        if before and before.index == word.index and word.first - before.last <= 1:
            text = memory.words.between(before.first, word.last) or f"{before.text} {word.text}"
            phrases[-1] = Phrase(text, before.first, word.last, word.index, max(seen, before.seen))
        else:
            phrases.append(Phrase(word.text, word.first, word.last, word.index, seen))
    return sorted(phrases, key=lambda phrase: (-phrase.seen, -phrase.first))


def in_lines(memory: CacheView) -> list[str]:
    """Lines about what is remembered, the oldest message first: for readers without a screen."""
    session, cache = memory.session, memory.cache
    if session is None or cache is None or not cache.seen:
        return ["nothing was read yet"]
    pinned = cache.kinds.get("S", 0) > session.sinks
    kinds = (("R", "newest"), ("H", "important"), ("S", "pinned" if pinned else "first"))
    lines = [
        f"remembers {cache.kept:,} of {cache.seen:,} tokens, {memory.evicted:,} are forgotten"
        if memory.evicted
        else f"{cache.kept:,} of {session.budget or 'all'} tokens are taken: nothing is forgotten yet",
        ", ".join(f"{name} {cache.kinds.get(kind, 0):,}" for kind, name in kinds),
    ]
    by_message: dict[int, list[str]] = {}
    for held in remembered(memory):
        words = by_message.setdefault(held.word.index, [])
        if len(words) < WORDS:
            words.append(f"{held.word.text} ({heads(held.hold, memory.caches)})")
    if by_message:
        lines.append("still remembered from long ago:")
    return lines + [
        f"{numbered(index)} {', '.join(words)}" for index, words in [*by_message.items()][:MESSAGES]
    ]
