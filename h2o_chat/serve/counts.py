"""What is counted for /metrics."""

from collections import Counter
from dataclasses import dataclass, field

from h2o_chat.events.events import Turn


@dataclass
class Counts:
    """Since the server began."""

    answers: Counter[str] = field(default_factory=Counter)
    """By how they ended."""
    statuses: Counter[int] = field(default_factory=Counter)
    """Of HTTP."""
    prompt_tokens: int = 0
    """Read; those that were read for an earlier request are not among them."""
    cached_tokens: int = 0
    new_tokens: int = 0
    prompt_s: float = 0.0
    answer_s: float = 0.0
    slow: int = 0
    """Streams that were cut because nobody read them."""

    def turn(self, turn: Turn, cached_tokens: int, prompt_ms: float) -> None:
        """A request has ended."""
        self.answers[turn.finish] += 1
        self.prompt_tokens += turn.prompt_tokens
        self.cached_tokens += cached_tokens
        self.new_tokens += turn.new_tokens
        self.prompt_s += prompt_ms / 1000
        if turn.tok_s:
            self.answer_s += (turn.new_tokens - 1) / turn.tok_s
