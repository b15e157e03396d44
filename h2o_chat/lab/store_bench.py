"""`h2o-chat bench store`: are a thousand conversations still listed, searched and opened at once?

The words are drawn as words are spoken (the n-th most frequent word 1/n as often as the first), so the index
has the long lists that real text gives it.
"""

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from h2o_chat.base.progress import progress_bar
from h2o_chat.store import DATABASE, Conversation, Store, StoredMessage

VOCABULARY = 20_000
WORDS_PER_MESSAGE = 40
REPEATS = 9


@dataclass(frozen=True)
class StoreTimes:
    """What was measured: medians, each from opening the database to the last row."""

    conversations: int
    messages: int
    database_bytes: int
    list_ms: float
    search_frequent_ms: float
    """A word of nearly every message."""
    search_rare_ms: float
    search_begun_ms: float
    """Two frequent words and the first two letters of others."""
    open_ms: float
    """The active branch of one conversation, with its tokens."""
    worst_ms: float
    """The slowest single one of all these."""


def run_store(conversations: int = 2000, messages: int = 200_000, seed: int = 0) -> list[StoreTimes]:
    """Builds a database in a temporary folder and measures it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder, conversations, messages, random.Random(seed))
        store = Store(folder)
        ids = [one.id for one in store.list()]
        store.close()
        chance = random.Random(seed)
        times = {
            "list_ms": _times(folder, lambda store: store.list()),
            "search_frequent_ms": _times(folder, lambda store: store.search(_word(0))),
            "search_rare_ms": _times(folder, lambda store: store.search(_word(VOCABULARY - 1))),
            "search_begun_ms": _times(
                folder, lambda store: store.search(f"{_word(0)} {_word(1)} {_word(500)[:2]}")
            ),
            "open_ms": _times(folder, lambda store: store.path(chance.choice(ids))),
        }
        worst = max(max(one) for one in times.values())
        size = (folder / DATABASE).stat().st_size
        medians = {name: statistics.median(one) for name, one in times.items()}
        return [StoreTimes(conversations, messages, size, **medians, worst_ms=worst)]


def build(folder: Path, conversations: int, messages: int, chance: random.Random) -> None:
    """A database of so many messages, in conversations of equal length."""
    store = Store(folder)
    length = messages // conversations
    try:
        with progress_bar() as progress:
            for number in range(conversations):
                store.put([conversation_of(float(number), length, chance)])
                progress("write conversations", number / conversations)
    finally:
        store.close()


def conversation_of(created: float, length: int, chance: random.Random) -> Conversation:
    """So many messages on one branch."""
    messages = list(_messages(length, chance))
    return Conversation("", "", "pocket", {"budget": 512}, created, created, length - 1, messages)


def _messages(length: int, chance: random.Random) -> Iterator[StoredMessage]:
    weights = _cumulative()
    for number in range(length):
        drawn = chance.choices(range(VOCABULARY), cum_weights=weights, k=WORDS_PER_MESSAGE)
        yield StoredMessage(
            id=number,
            parent=number - 1 if number else None,
            role="assistant" if number % 2 else "user",
            text=" ".join(map(_word, drawn)),
            finish="eos" if number % 2 else None,
            first=number * WORDS_PER_MESSAGE,
            last=(number + 1) * WORDS_PER_MESSAGE - 1,
            ids=tuple(drawn),
            created=float(number),
        )


def _cumulative() -> list[float]:
    total, weights = 0.0, []
    for rank in range(1, VOCABULARY + 1):
        total += 1 / rank
        weights.append(total)
    return weights


def _word(rank: int) -> str:
    """A word of its own for every rank, the frequent ones short, as in a language."""
    letters = "etaoinshrdlu"
    word = letters[rank % 12]
    while rank := rank // 12:
        word += letters[rank % 12]
    return word


def _times(folder: Path, look: Callable[[Store], object]) -> list[float]:
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        store = Store(folder)
        look(store)
        times.append((time.perf_counter() - began) * 1000)
        store.close()
    return times
