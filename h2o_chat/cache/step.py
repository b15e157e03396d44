"""A step: what is said before tokens are fed, and what follows from it."""

from dataclasses import dataclass, field

from torch import Tensor

from h2o_chat.cache.clock import Pass


@dataclass
class Step:
    """The next tokens, fed in one call of the model."""

    tokens: int  # columns, padding included
    prompt: bool | None = None  # not generated; None: several at once are of a prompt, a single one is not
    real: Tensor | None = None  # [R, N] bool, False for padding; None: all are real
    passes: list[Pass] = field(default_factory=list)  # in which they attend; `H2OCache.prepare` fills it
    begun: bool = False  # the first layer has attended

    def __post_init__(self) -> None:
        if self.prompt is None:
            self.prompt = self.tokens > 1

    def counts(self, rows: int) -> list[int]:
        """Real tokens of each row."""
        return [self.tokens] * rows if self.real is None else self.real.sum(-1).tolist()
