"""One forward call: tokens, padding, kernels, cancellation."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from torch import Tensor

from h2o_chat.base.progress import ShouldStop, never
from h2o_chat.cache.clock import Pass
from h2o_chat.cache.eviction import TORCH, Kernels


class Cancelled(Exception):
    """Reading a prompt was cancelled; the cache is left as after any other error in a step."""


@dataclass
class Step:
    """The next tokens, fed in one call of the model."""

    tokens: int  # columns, padding included
    prompt: bool | None = None  # not generated; None: several at once are of a prompt, a single one is not
    real: Tensor | None = None  # [R, N] bool, False for padding; None: all are real
    passes: list[Pass] = field(default_factory=list)  # filled by `make_ready` (transformers_cache/ready.py)
    begun: bool = False  # the first layer has attended
    changed_slots: bool = False  # or scores: the step cannot be undone
    kernels: Kernels = TORCH  # computations over all slots
    cancelled: ShouldStop = never  # asked before each layer of a prompt; True raises `Cancelled`
    absorb_context: Callable[[], AbstractContextManager[None]] = nullcontext  # around absorbing the last pass
    half_absorbed: bool = False  # absorbing the last pass began and did not end

    @property
    def of_prompt(self) -> bool:
        """Whether the tokens belong to a prompt."""
        return self.tokens > 1 if self.prompt is None else self.prompt
