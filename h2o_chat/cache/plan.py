"""Settings that all layers of one cache share, chosen once."""

from dataclasses import dataclass

from h2o_chat.base.config import Prefill
from h2o_chat.cache.clock import Clock
from h2o_chat.cache.distance import Distance
from h2o_chat.policies.policies import Policy
from h2o_chat.policies.scores import LATELY, Received
from h2o_chat.policies.shares import Shares

GROW = 256  # slots that are added at a time if nothing is evicted
MOST_CHUNK = 512  # with many slots too: after each chunk a reader is told how far it is


@dataclass(frozen=True)
class Plan:
    policy: Policy
    shares: Shares
    asked: tuple[int | None, int | None]  # sinks and recent tokens as the caller gave them
    chunk: int  # prompt tokens that attend before the next eviction, if prefill is chunked
    prefill: Prefill  # full: all tokens of one call attend to each other before any is evicted
    observe: bool  # keep the account that `lost` needs
    bits: int | None  # bits of a number in the slots (`quantized.py`); None: the model's own precision
    distance: Distance | None  # None: the caller is responsible for positions

    @property
    def budget(self) -> int:
        """Slots that may be in use between two steps."""
        return self.shares.budget

    @property
    def stride(self) -> int:
        """Slots evicted together while decoding."""
        return self.shares.stride(self.policy)

    @property
    def decay_factor(self) -> float:
        """Factor of a score at every query, see `Policy.decay_factor`."""
        return 1 - 1 / self.budget if self.policy.decay_factor is None else self.policy.decay_factor

    @property
    def grows(self) -> dict[str, Received]:
        """States that queries add to, with the rule of adding."""
        return (
            {"score": self.policy.scores} | ({"lately": LATELY} if self.observe else {}) | self.policy.grows
        )

    def clock(self) -> Clock:
        """The clock of an empty row."""
        return Clock(protect_below=self.shares.sinks)

    @property
    def slots(self) -> int:
        """Slots of a new arena, S."""
        return (self.budget if self.shares.bounded else GROW) + 1
