"""The memory in words: what is still held, what was just forgotten, and why. No widgets here."""

from bisect import bisect_right, insort
from collections import Counter
from dataclasses import dataclass
from heapq import nlargest

from h2o_chat.base.errors import UsageError
from h2o_chat.base.glyphs import NAMES, heads
from h2o_chat.base.safe import safe_text, token_label
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.chat.memory.cache_view import CacheView, Kind
from h2o_chat.chat.memory.words import Word
from h2o_chat.events.events import Session

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
    text: str
    first: int
    last: int
    index: int
    seen: int
    """Tokens seen when the last of them was forgotten."""


def remembered(memory: CacheView, most: int = LISTED) -> list[HeldWord]:
    """The words that are held for another reason than being new, the oldest message first.

    In each message the words that most heads hold come first. A word is listed once, where it was said first:
    words that stand everywhere would fill the list. Common words ("the") follow behind the others, and pinned
    ones last. The system prompt is left out: it cannot be evicted. Before the first eviction: all words.
    """
    bound = memory.recent_from if memory.evicted else memory.seen
    old = sorted(position for position in memory.hold if position < bound)
    found, common, pinned = list[HeldWord](), list[HeldWord](), list[HeldWord]()
    listed = set[str]()
    at = 0
    while at < len(old) and len(found) < most:
        span = memory.span(old[at])
        end = bisect_right(old, span.last, at) if span else at + 1
        if span and span.role != "system":
            for held in _of_message(memory, old[at:end], most):
                if held.word.text.lower() not in listed:
                    plain = common if memory.words.is_common(held.word.text) else found
                    (pinned if held.kind == "S" else plain).append(held)
            listed.update(held.word.text.lower() for held in (*found, *common, *pinned))
        at = end
    return (found + common + pinned)[:most]


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
    lines = [
        f"remembers {cache.kept:,} of {cache.seen:,} tokens, {memory.evicted:,} are forgotten"
        if memory.evicted
        else f"{cache.kept:,} of {session.budget or 'all'} tokens are taken: nothing is forgotten yet",
        ", ".join(f"{memory.names[kind]} {cache.kinds.get(kind, 0):,}" for kind in "RHS"),
    ]
    by_message: dict[int, list[str]] = {}
    for held in remembered(memory):
        words = by_message.setdefault(held.word.index, [])
        if len(words) < WORDS:
            words.append(f"{held.word.text} ({heads(held.hold, memory.caches)})")
    if by_message:
        lines.append("still remembered from long ago:")
    shown = [*by_message.items()][:MESSAGES]
    return lines + [f"{numbered(index)} {', '.join(words)}" for index, words in shown]


MOST = 20
"""The oldest places, which are listed; the others are counted."""
KEPT_BECAUSE = {
    "h2o": "attention came back to it, and it says what others do not",
    "h2o-paper": "attention came back to it most",
    "caote": "the answers would change most without it",
    "random": "chance has spared it",
    "heavy-only": "attention came back to it most",
    "last-query": "the last question attended to it",
    "lru": "it was attended to lately",
    "snapkv": "the end of the prompt attended to it",
}
"""Reasons of the policies that rank by something a person can see."""
WHY = "/why WORD, /why #3 or /why @POSITION"


def why(memory: CacheView, wanted: str) -> list[str]:
    """Lines about each place of a word, or of several; about the token `@POSITION`; or message `#NUMBER`.

    A reason that several places share is told with the first of them.

    Raises:
        UsageError: there is none.
    """
    if memory.session is None or memory.cache is None:
        raise UsageError("Nothing was read yet.", "Say something first.")
    if wanted.startswith("@") and wanted[1:].isdecimal():
        return [_token(memory, int(wanted[1:12]))]
    if wanted.startswith("#") and wanted[1:].isdecimal():
        return _message(memory, int(wanted[1:12]) - 1)
    found = list(memory.words.find(wanted))
    if not found:
        raise UsageError(f"{wanted!r} was not said in this conversation.", WHY)
    lines, said = list[str](), {""}
    for one in found[:MOST]:
        what, because = _place(memory, one)
        lines.append(what if because in said else f"{what}: {because}")
        said.add(because)
    more = len(found) - len(lines)
    return lines + ([f"and {more:,} later time{'s' * (more > 1)}"] if more else [])


def since(memory: CacheView, seen: int) -> str:
    """The message that was being said when so many tokens had been seen."""
    span = memory.span(seen - 1)
    return f"since {numbered(span.index)}" if span else f"since token {seen:,}"


def _place(memory: CacheView, found: Word | int) -> tuple[str, str]:
    if isinstance(found, int):
        return f"{numbered(found)}  said here; which of its tokens it was is not known any more", ""
    what, because = _reason(memory, found)
    return f"{numbered(found.index)}  “{safe_text(found.text)}”  {what}", because


def _token(memory: CacheView, position: int) -> str:
    if position >= memory.seen:
        return f"@{position} was not read yet: {memory.seen:,} tokens were."
    word, span = memory.word(position), memory.span(position)
    text = memory.text(position)
    name = f"“{safe_text(word.text)}”" if word else token_label(text) if text else "a token"
    where, index = (f" {numbered(span.index)}", span.index) if span else ("", 0)
    reason = _reason(memory, word or Word(name, position, position, index))
    return f"@{position} {name}{where}  {': '.join(filter(None, reason))}"


def _message(memory: CacheView, index: int) -> list[str]:
    """How much of a message is held, and for each kind of its tokens how many there are and why."""
    session, span = memory.session, next((one for one in memory.spans if one.index == index), None)
    assert session is not None
    tokens = range(span.first, min(span.last + 1, memory.seen)) if span else range(0)
    if not tokens:
        raise UsageError(f"No message {numbered(index)} was read.", "Its number stands at its head.")
    mean = sum(memory.hold.get(position, 0.0) for position in tokens) / len(tokens)
    held = f"on average {heads(mean, memory.caches)} hold each"
    lines = [f"{numbered(index)} has {len(tokens):,} tokens; {held}."]
    if session.budget is None or not memory.evicted:
        return [*lines, _kept(memory, Word("", tokens[0], tokens[0], index), "H")]
    reasons = {
        "S": "as first tokens, system prompt or pinned message they are never forgotten where they are held",
        "H": f"of each: {_ranked_high(session)}",
        "R": f"the newest {session.recent:,} tokens are always kept",
        "·": f"no head holds them; {_went(session)}",
    }
    kinds = Counter[str](map(memory.kind, tokens))
    return lines + [f"{kinds[kind]:,} {NAMES[kind]}: {why}" for kind, why in reasons.items() if kinds[kind]]


def _ranked_high(session: Session) -> str:
    return f"{KEPT_BECAUSE.get(session.policy, 'it ranks above what went')} ({token_label(session.policy)})"


def _went(session: Session) -> str:
    """Why a token goes: it is no longer new, and ranks lowest of what is neither new nor protected."""
    reasons = [f"older than the newest {session.recent:,} tokens"] if session.recent else []
    if session.budget is not None and session.sinks + session.recent < session.budget:
        by = "chance" if session.policy == "random" else "attention"
        reasons.append(f"ranked below what was kept, by {by} ({token_label(session.policy)})")
    return " and ".join(reasons)


def _reason(memory: CacheView, word: Word) -> tuple[str, str]:
    """How many heads hold it, or since when it is forgotten; and why."""
    if word.last >= memory.seen:
        return "not read yet", ""
    hold = memory.hold_of(word)
    if hold <= 0:
        return _forgotten(memory, word)
    least = min(word.tokens, key=lambda position: memory.hold[position])
    kind = memory.kind(word.first if memory.kind(word.first) == "S" else least)
    return f"{heads(hold, memory.caches)} · {NAMES[kind]}", _kept(memory, word, kind)


def _kept(memory: CacheView, word: Word, kind: str) -> str:
    session, cache = memory.session, memory.cache
    assert session is not None
    assert cache is not None
    if session.budget is None:
        return "the full policy keeps everything"
    if kind == "S":
        span = memory.span(word.first)
        pinned = "the system prompt" if span and span.role == "system" else "its message is pinned"
        if word.first < session.sinks:
            pinned = "one of the first tokens, which attention rests on"
        return f"{pinned}; it is never forgotten where it is held"
    if not memory.evicted:
        return f"nothing had to go yet, {cache.kept:,} of {session.budget:,} slots are taken"
    if kind == "R":
        more = word.first - memory.recent_from + 1
        return f"one of the newest {session.recent:,} tokens, safe for {more:,} more"
    return _ranked_high(session)


def _forgotten(memory: CacheView, word: Word) -> tuple[str, str]:
    gone = [position for position in word.tokens if position not in memory.hold]
    told = [went.seen for position in gone if (went := memory.left(position))]
    when = since(memory, min(told)) if told else "long ago"
    left = len(word.tokens) - len(gone)
    part = f", only {left} of its {len(word.tokens)} tokens {'is' if left == 1 else 'are'} still held"
    assert memory.session is not None
    return f"forgotten {when}{part if left else ''}", _went(memory.session)
