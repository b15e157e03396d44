"""An engine that says what it is told to."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import GenerationError
from h2o_chat.events.events import CacheState, Event, Finish, Prompt, Session, Token, Turn

SESSION = Session(
    model="m", revision=None, template="", policy="h2o", budget=8, sinks=0, recent=4, chunk=16,
    prefill="chunked", quantization="none", dtype="float32", kv_dtype="float32", device="cpu",
    engine="transformers", threads=1, seed=1, layers=1, kv_heads=1, window=512,
)  # fmt: skip


class ScriptedEngine:
    """Counts positions as the engine does, and says what it is told to."""

    def protection(self) -> tuple[int, int | None]:
        return 1 << 30, None  # everything

    def __init__(self, tokenizer: Any, answer: str = "ok", end: int | None = None) -> None:
        self.session, self.tokenizer = SESSION, tokenizer
        self.eos = frozenset({tokenizer.eos_token_id})
        self.pending: tuple[int, ...] = ()
        self.seen = 0
        self.fed: list[list[int]] = []
        self.protected = 0
        self.answer = [*tokenizer.encode(answer, add_special_tokens=False), *([] if end is None else [end])]
        self.changed: list[tuple[int, float, float]] = []
        self.fails = False
        self.finish: Finish | None = None
        self.asked: list[Sampling] = []

    def generate(self, ids: Sequence[int], sampling: Sampling, *_: Any, **__: Any) -> Iterator[Event]:
        self.fed.append(list(ids))
        self.asked.append(sampling)
        first, before = self.seen, (self.seen, self.pending)
        self.seen += len(self.pending) + len(ids)
        yield Prompt(self.seen - first, first, self.seen - 1, 1, 0.0)
        for token in self.answer:
            yield Token(token, self.tokenizer.decode([token], skip_special_tokens=True), self.seen, 0.0)
            self.seen += 1
        self.seen -= 1
        self.pending = (self.answer[-1],)
        finish = self.finish or ("eos" if self.answer[-1] in self.eos else "length")
        if self.fails:
            self.seen, self.pending = before
            yield Turn("", "error", 0, 0, 0, 0, self.seen, 0, 0, 0)
            raise GenerationError("The logits are NaN.")
        yield CacheState(self.seen, 8, 0, 0, 0.0, {}, [], self.changed, [])
        text = self.tokenizer.decode(self.answer, skip_special_tokens=True)
        yield Turn(text, finish, len(ids), len(self.answer), 0, 0, self.seen, 8, 0, 0)

    def protect(self, tokens: int) -> int:
        self.protected = tokens
        return tokens

    def expect_thoughts(self, special: Iterable[int] = (), drops: bool = False) -> None:
        """Scripted answers have none."""
