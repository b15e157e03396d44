"""`h2o-chat bench turns`: does a turn cost the same after 100,000 turns as after 1,000?

All of a conversation but the model: the template, the messages, what they hold, the store with its index of
words. The engine is a stand-in with a budget, whose own cost per token is measured by `bench soak`.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.progress import never, progress_bar
from h2o_chat.chat.chat import Chat
from h2o_chat.chat.engine_like import EngineLike
from h2o_chat.chat.keeping import Keeper
from h2o_chat.events.events import CacheState, Event, Prompt, Session, Token, Turn
from h2o_chat.store import DATABASE, Store

BUDGET = 256
ROWS = 10


@dataclass(frozen=True)
class TurnTimes:
    """What was measured in a stretch of turns of one token."""

    turns: int
    """At its end."""
    turn_ms: float
    """Median."""
    worst_ms: float
    database_bytes: int


def run_turns(turns: int = 100_000) -> list[TurnTimes]:
    """Talks in a temporary folder; ten rows."""
    rows, times = [], []
    with tempfile.TemporaryDirectory() as name, progress_bar() as show:
        store = Store(Path(name))
        engine, settings = _Engine(), Settings(budget=BUDGET)
        keeper = Keeper(store, None, engine.session, asdict(settings))
        chat = Chat(cast(EngineLike, engine), settings, keeper)
        for turn in range(1, turns + 1):
            began = time.perf_counter()
            for _ in chat.send("Go on.", Sampling(max_tokens=1)):
                pass
            times.append(1000 * (time.perf_counter() - began))
            if turn % max(1, turns // ROWS) == 0:
                size = sum(file.stat().st_size for file in Path(name).glob(DATABASE + "*"))
                rows.append(TurnTimes(turn, statistics.median(times), max(times), size))
                times.clear()
                show("turns", turn / turns)
        keeper.close()
        store.close()
    return rows


class _Tokenizer:
    """One token a character."""

    chat_template = None
    bos_token_id = eos_token_id = None
    all_special_ids: Sequence[int] = ()

    def encode(self, text: str, **_: Any) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join(map(chr, ids))

    def __call__(self, text: str, **_: Any) -> Any:
        return {"input_ids": self.encode(text)}


class _Engine:
    """Answers every turn with one token, and holds the last `BUDGET` of them."""

    def __init__(self) -> None:
        self.session = Session(
            model="stand-in", revision=None, template="", policy="h2o", budget=BUDGET, sinks=4,
            recent=BUDGET // 2, chunk=16, prefill="chunked", quantization="none", dtype="float32",
            kv_dtype="float32", device="cpu", engine="stand-in", threads=1, seed=1, layers=1, kv_heads=1,
            window=512,
        )  # fmt: skip
        self.tokenizer = _Tokenizer()
        self.eos = frozenset[int]()
        self.pending: tuple[int, ...] = ()
        self.seen = 0

    def generate(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        cancel: Callable[[], bool] = never,
        others: object = None,
    ) -> Iterator[Event]:
        first = self.seen
        self.seen += len(self.pending) + len(ids)
        yield Prompt(self.seen - first, first, self.seen - 1, 1, 0.0)
        yield Token(ord("x"), "x", self.seen, 0.0)
        self.pending = (ord("x"),)
        gone = range(max(0, first - BUDGET), max(0, self.seen - BUDGET))
        changed = [(at, 0.0, 0.0) for at in gone] + [(at, 1.0, 0.0) for at in range(first, self.seen)]
        yield CacheState(self.seen, BUDGET, 0, 0, 0.0, {}, [], changed, [])
        yield Turn("x", "length", len(ids), 1, 0, 0, self.seen, BUDGET, 0, 0)

    def protection(self) -> tuple[int, int | None]:
        return 0, BUDGET

    def protect(self, tokens: int) -> int:
        return tokens

    def save(self, path: Path) -> None:
        path.write_bytes(b"")
