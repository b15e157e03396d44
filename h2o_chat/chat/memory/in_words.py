"""What a cache still holds of what was said, in whole words: `/memory` and `/why` of the plain chat."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.conversation.spans import tokens_of
from h2o_chat.events.events import CacheState

MESSAGES, WORDS = 12, 8
"""Messages that `memory` tells of, and words of each: nobody listens to more."""

_MARKER = re.compile(r"<[^<>\s]{1,40}>")
"""Of a template: `<|assistant|>`, `</s>`."""


@dataclass(frozen=True)
class Word:
    """A word of a message, and how much of it is held."""

    text: str
    position: int
    """Of its first token."""
    hold: float
    """Share of the heads that hold its tokens, 0 to 1."""


def words_of(tokens: Iterable[tuple[int, str, float]]) -> list[Word]:
    """The words that tokens (position, text, hold) make together; marks of a template are none."""
    words: list[Word] = []
    letters, parts = "", dict[int, float]()

    def end() -> None:
        nonlocal letters
        for marker in _MARKER.findall(letters):
            letters = letters.replace(marker, "")
        text = letters.strip(".,;:!?()[]{}\"'“”‘’*_`")
        if any(character.isalnum() for character in text):
            words.append(Word(text, min(parts), sum(parts.values()) / len(parts)))
        letters = ""
        parts.clear()

    for position, text, hold in tokens:
        for character in text:
            if character.isspace():
                end()
            else:
                letters += character
                parts[position] = hold
    end()
    return words


def words_in(chat: Chat, index: int, texts: Mapping[int, str]) -> list[Word]:
    """The words of message `index`.

    Args:
        texts: of tokens, by position.
    """
    place = tokens_of(chat.messages[index])
    return words_of((at, texts.get(at, ""), chat.holds.of(at)) for at in place)


def memory(chat: Chat, texts: Mapping[int, str]) -> list[str]:
    """What is remembered, line by line; the oldest message first."""
    state, budget = chat.state, chat.session.budget
    if state is None or not state.seen:
        return ["nothing was read yet"]
    forgotten = state.seen - state.kept
    pinned = state.kinds.get("S", 0) > chat.session.sinks
    kinds = (("R", "newest"), ("H", "important"), ("S", "pinned" if pinned else "first"))
    lines = [
        f"remembers {state.kept:,} of {state.seen:,} tokens, {forgotten:,} are forgotten"
        if forgotten
        else f"{state.kept:,} of {budget or 'all'} tokens are taken: nothing is forgotten yet",
        ", ".join(f"{name} {state.kinds.get(kind, 0):,}" for kind, name in kinds),
    ]
    old = []
    for index, message in enumerate(chat.messages):
        if not tokens_of(message) or tokens_of(message).stop > _recent_from(chat, state):
            continue
        held = {one.text: one for one in words_in(chat, index, texts) if one.hold}
        if held:
            most = sorted(held.values(), key=lambda one: -one.hold)[:WORDS]
            told = ", ".join(f"{one.text} ({_heads(chat, one.hold)})" for one in most)
            old.append(f"#{index + 1} {told}")
    return lines + (["still remembered from long ago:", *old[:MESSAGES]] if old else [])


def why(chat: Chat, texts: Mapping[int, str], wanted: str) -> list[str]:
    """Of each place where a word was said, the oldest first: who remembers it, and why."""
    state = chat.state
    if state is None:
        return []
    lines = []
    for index in range(len(chat.messages)):
        for one in words_in(chat, index, texts):
            if wanted in (f"@{one.position}", one.text) or wanted.lower() == one.text.lower():
                lines.append(f"#{index + 1} {one.text}: {_reason(chat, state, one)}")
    return lines


def _reason(chat: Chat, state: CacheState, word: Word) -> str:
    if not word.hold:
        return "forgotten: when a slot was needed, other words were more important"
    held = f"remembered by {_heads(chat, word.hold)}"
    if _within(state.protected, word.position):
        return f"{held}: it is pinned, or among the first tokens, which always stay"
    if word.position >= _recent_from(chat, state):
        return f"{held}: it is among the newest"
    if state.seen == state.kept:
        return f"{held}: nothing had to be forgotten yet"
    return f"{held}: later words attend to it, so it is important"


def _within(runs: Sequence[tuple[int, int]], position: int) -> bool:
    return any(first <= position <= last for first, last in runs)


def _recent_from(chat: Chat, state: CacheState) -> int:
    """Position of the first token that is safe for being new."""
    return 0 if chat.session.budget is None else max(0, state.seen - chat.session.recent)


def _heads(chat: Chat, hold: float) -> str:
    """How many of the (layer, KV head) caches a share of them is."""
    heads = chat.session.layers * chat.session.kv_heads
    return f"{max(1, round(hold * heads))} of {heads} heads"
