"""The one thing that is said before tokens are fed: how many, whose, and what is padding."""

from dataclasses import dataclass, field

from torch import Tensor

from h2o_chat.cache.clock import Pass


@dataclass(frozen=True)
class Step:
    """The next tokens to be fed in one call of the model."""

    tokens: int
    """Columns, padding included."""
    prompt: bool | None = None
    """Whether they were said to the model, not by it; None: several at once are, a single one is not."""
    real: Tensor | None = None
    """[R, N] bool, False for padding; None: all are real."""


@dataclass
class Now:
    """A step that is under way."""

    step: Step
    passes: list[Pass] = field(default_factory=list)
    begun: bool = False
    """The first layer has attended."""

    @property
    def prompt(self) -> bool:
        return self.step.tokens > 1 if self.step.prompt is None else self.step.prompt
