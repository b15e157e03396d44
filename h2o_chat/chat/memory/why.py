"""Why a word was kept or evicted: a line for each place where it stands. No widgets here."""

from h2o_chat.base.errors import UsageError
from h2o_chat.base.glyphs import NAMES, heads
from h2o_chat.base.safe import safe_text, token_label
from h2o_chat.chat.conversation.message import numbered
from h2o_chat.chat.memory.cache_view import CacheView
from h2o_chat.chat.memory.words import Word

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
    "lfu": "it was attended to often",
    "snapkv": "the end of the prompt attended to it",
}
"""Reasons of the policies that rank by something a person can see."""


def why(memory: CacheView, wanted: str) -> list[str]:
    """A line for each place where a word, several words, or the token `@POSITION` stands, oldest first.

    Raises:
        UsageError: it was never said, as far as the tokens are known.
    """
    if memory.session is None or memory.cache is None:
        raise UsageError("Nothing was read yet.", "Say something first.")
    if wanted.startswith("@") and wanted[1:].isdecimal():
        return [_token(memory, int(wanted[1:12]))]
    found = list(memory.words.find(wanted))
    if not found:
        raise UsageError(f"{wanted!r} was not said in this conversation.", "/why WORD or /why @POSITION")
    lines = [_place(memory, one) for one in found[:MOST]]
    more = len(found) - len(lines)
    return lines + ([f"and {more:,} later time{'s' * (more > 1)}"] if more else [])


def since(memory: CacheView, seen: int) -> str:
    """The message that was being said when so many tokens had been seen."""
    span = memory.span(seen - 1)
    return f"since {numbered(span.index)}" if span else f"since token {seen:,}"


def _place(memory: CacheView, found: Word | int) -> str:
    if isinstance(found, int):
        return f"{numbered(found)}  said here; which of its tokens it was is not known any more"
    return f"{numbered(found.index)}  “{safe_text(found.text)}”  {_reason(memory, found)}"


def _token(memory: CacheView, position: int) -> str:
    if position >= memory.seen:
        return f"@{position} was not read yet: {memory.seen:,} tokens were."
    word, span = memory.word(position), memory.span(position)
    text = memory.text(position)
    name = f"“{safe_text(word.text)}”" if word else token_label(text) if text else "a token"
    where = f" {numbered(span.index)}" if span else ""
    index = span.index if span else 0
    return f"@{position} {name}{where}  {_reason(memory, word or Word(name, position, position, index))}"


def _reason(memory: CacheView, word: Word) -> str:
    """How many heads hold it and why, or since when it is forgotten."""
    if word.last >= memory.seen:
        return "not read yet"
    hold = memory.hold_of(word)
    if hold <= 0:
        return _forgotten(memory, word)
    least = min(word.tokens, key=lambda position: memory.hold[position])
    kind = memory.kind(word.first if memory.kind(word.first) == "S" else least)
    return f"{heads(hold, memory.caches)} · {NAMES[kind]}: {_kept(memory, word, kind)}"


def _kept(memory: CacheView, word: Word, kind: str) -> str:
    session, cache = memory.session, memory.cache
    assert session is not None
    assert cache is not None
    if session.budget is None:
        return "the full policy keeps everything"
    if kind == "S":
        return f"{_pinned(memory, word.first)}; it is never forgotten where it is held"
    if not memory.evicted:
        return f"nothing had to go yet, {cache.kept:,} of {session.budget:,} slots are taken"
    if kind == "R":
        more = word.first - memory.recent_from + 1
        return f"safe for {more:,} more token{'s' * (more > 1)}"
    return f"{KEPT_BECAUSE.get(session.policy, 'ranked above what went')} ({token_label(session.policy)})"


def _pinned(memory: CacheView, position: int) -> str:
    session, span = memory.session, memory.span(position)
    if session is not None and position < session.sinks:
        return "one of the first tokens, which attention rests on"
    return "the system prompt" if span and span.role == "system" else "its message is pinned"


def _forgotten(memory: CacheView, word: Word) -> str:
    gone = [position for position in word.tokens if position not in memory.hold]
    told = [went.seen for position in gone if (went := memory.left(position))]
    when = since(memory, min(told)) if told else "long ago"
    left = len(word.tokens) - len(gone)
    part = f"; {left} of its {len(word.tokens)} tokens are still held" if left else ""
    return f"forgotten {when}{part}"
