"""A step: what is said before tokens are fed."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from torch import Tensor

from h2o_chat.base.progress import never
from h2o_chat.cache.clock import Pass
from h2o_chat.cache.settle import TORCH, Kernels


class Cancelled(Exception):
    """Who fed a prompt wants it no more: it ends in the middle, as after any other error."""


@dataclass
class Step:
    """The next tokens, fed in one call of the model."""

    tokens: int  # columns, padding included
    prompt: bool | None = None  # not generated; None: several at once are of a prompt, a single one is not
    real: Tensor | None = None  # [R, N] bool, False for padding; None: all are real
    passes: list[Pass] = field(default_factory=list)  # in which they attend; `make_ready` fills it
    begun: bool = False  # the first layer has attended
    lasting: bool = False  # slots or scores have changed: what was fed cannot be taken back
    kernels: Kernels = TORCH  # what is computed of all slots
    cancelled: Callable[[], bool] = never  # asked of a prompt before each layer: then it raises `Cancelled`
    around: Callable[[], AbstractContextManager[None]] = nullcontext  # entered to absorb its last pass
    half_absorbed: bool = False  # that began, and has not come to its end

    @property
    def of_prompt(self) -> bool:
        """Whether the tokens are of a prompt."""
        return self.tokens > 1 if self.prompt is None else self.prompt
