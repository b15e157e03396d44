"""A step: what is said before tokens are fed."""

from dataclasses import dataclass, field

from torch import Tensor

from h2o_chat.cache.clock import Pass


@dataclass
class Step:
    """The next tokens, fed in one call of the model."""

    tokens: int  # columns, padding included
    prompt: bool | None = None  # not generated; None: several at once are of a prompt, a single one is not
    real: Tensor | None = None  # [R, N] bool, False for padding; None: all are real
    passes: list[Pass] = field(default_factory=list)  # in which they attend; `make_ready` fills it
    begun: bool = False  # the first layer has attended
    lasting: bool = False  # slots or scores have changed: what was fed cannot be taken back

    @property
    def of_prompt(self) -> bool:
        """Whether the tokens are of a prompt."""
        return self.tokens > 1 if self.prompt is None else self.prompt
