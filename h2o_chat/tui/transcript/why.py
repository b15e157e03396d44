"""Why a token was kept or dropped, in sentences, from what the events have told. No widgets here."""

from collections.abc import Callable

from h2o_chat.base.safe import token_label
from h2o_chat.tui.panel.held import CacheView

MOST = 6
"""Tokens told of: a word may be cut into several."""


def positions_of(memory: CacheView, text_of: Callable[[int], str], wanted: str) -> list[int]:
    """Where a word, or `@position`, stands: the tokens of its last occurrence among those known.

    Known are those held, and those in the log of what went.
    """
    if wanted.startswith("@") and wanted[1:].isdecimal():
        return [int(wanted[1:12])]
    texts = {went.token.position: went.token.text for went in memory.went}
    texts |= {position: text_of(position) for position in memory.hold}
    whole, places = "", []
    before = -1
    for position in sorted(texts):
        piece = ("" if position == before + 1 else "\n") + texts[position]
        whole += piece
        places += [position] * len(piece)
        before = position
    at = whole.lower().rfind(wanted.lower())
    if at < 0 or len(whole.lower()) != len(whole):
        at = whole.rfind(wanted)
    return sorted(set(places[at : at + len(wanted)])) if at >= 0 and wanted else []


def why(memory: CacheView, position: int, text_of: Callable[[int], str]) -> str:
    """One token: what it is, who holds it, and the reason."""
    if memory.session is None or memory.cache is None:
        return "Nothing was seen yet."
    kind = memory.kind(position)
    if position >= memory.seen:
        return f"@{position} was not fed yet: {memory.seen:,} tokens were seen."
    went = next((went for went in reversed(memory.went) if went.token.position == position), None)
    text = went.token.text if kind == "·" and went else text_of(position)
    span = memory.span(position)
    where = f" in message {span.index} ({span.role})" if span else ""
    name = f"@{position} {token_label(text)!r}{where}" if text else f"@{position}{where}"
    if kind == "·":
        return f"{name}: gone. {_gone(memory, position)}"
    holders = f"held by {memory.holders(memory.hold[position])} of {memory.caches} caches"
    return f"{name}: {holders}. {_kept(memory, position, kind)}"


def _kept(memory: CacheView, position: int, kind: str) -> str:
    session = memory.session
    assert session is not None
    assert memory.cache is not None
    if session.budget is None:
        return "The full policy keeps everything."
    if kind == "S":
        return f"Protected: {_protected(memory, position)}. It is never evicted where it is held."
    score = f"score {memory.score[position]:.3g}"
    if kind == "R":
        safe = f"the newest {session.recent:,} are safe, it until {position + session.recent + 1:,} are seen"
        return f"Recent: {safe}. Its {score}."
    if not memory.evicted:
        taken = f"{memory.cache.kept:,} of {session.budget:,} slots are taken"
        return f"Nothing had to go yet: {taken}. Its {score}."
    ranked = memory.heavy(position)
    rank = f"rank {ranked[0]} of the heavy hitters, mean {ranked[1].mean:.3g} a query, " if ranked else ""
    others = "" if memory.hold[position] == 1 else "; caches that do not hold it ranked others above it"
    return (
        f"Heavy: {rank}{score} under {session.policy}. There it is among the highest of those that are not"
        f" recent{others}."
    )


def _protected(memory: CacheView, position: int) -> str:
    session, span = memory.session, memory.span(position)
    if session is not None and position < session.sinks:
        return "one of the first tokens, which attention rests on (a sink)"
    return "the system prompt" if span and span.role == "system" else "its message is pinned"


def _gone(memory: CacheView, position: int) -> str:
    session = memory.session
    assert session is not None
    went = next((went for went in reversed(memory.went) if went.token.position == position), None)
    rule = f"When a slot was needed it had the lowest rank of those not recent, under {session.policy}"
    if went is None:
        return f"{rule}; that was before what the log still tells."
    last = f"its last score was {went.token.score:.3g}"
    held = f"{memory.holders(went.token.hold)} of {memory.caches} caches had it when last told"
    return f"The last cache let it go by the time {went.seen:,} tokens were seen. {rule}; {last}, {held}."
