"""Counters for /metrics."""

from collections import Counter
from dataclasses import dataclass, field

from h2o_chat.serve.stream import Ended


@dataclass
class Counts:
    answers: Counter[str] = field(default_factory=Counter)
    """Answers by `finish`."""
    statuses: Counter[int] = field(default_factory=Counter)
    """Responses by HTTP status."""
    prompt_tokens: int = 0
    """Prompt tokens read, without `cached_tokens`."""
    cached_tokens: int = 0
    new_tokens: int = 0
    prompt_s: float = 0.0
    answer_s: float = 0.0
    slow: int = 0
    """Streams that were cut because their clients did not read."""

    def add(self, ended: Ended) -> None:
        turn = ended.turn
        self.answers[turn.finish] += 1
        self.prompt_tokens += turn.prompt_tokens
        self.cached_tokens += ended.cached_tokens
        self.new_tokens += turn.new_tokens
        self.prompt_s += ended.prompt_ms / 1000
        if turn.tok_s:
            self.answer_s += (turn.new_tokens - 1) / turn.tok_s
