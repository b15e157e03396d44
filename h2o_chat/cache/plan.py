"""What all layers of one cache share, chosen once."""

from dataclasses import dataclass

from h2o_chat.base.config import Prefill
from h2o_chat.cache.distance import Distance
from h2o_chat.cache.policies import Policy, Shares


@dataclass
class Plan:
    """How the slots of a cache are used."""

    policy: Policy
    shares: Shares | None
    """None for the `full` policy."""
    chunk: int
    """Prompt tokens that attend before the next eviction, where prefill is chunked."""
    prefill: Prefill
    """full: all tokens of one call attend to each other before any is evicted."""
    observe: bool
    """Keep what `lost` is made of."""
    bits: int | None
    """Of a number in the slots, see `quantized.py`; None: keys and values as the model computes them."""
    distance: Distance | None
    """None leaves positions to the caller."""
    asked: tuple[int | None, int | None]
    """Sinks and recent tokens as the caller gave them."""

    @property
    def sinks(self) -> int:
        """First tokens that are always protected."""
        return self.shares.sinks if self.shares else 0

    @property
    def budget(self) -> int | None:
        """Slots that may be in use between two steps; None: all that are needed."""
        return self.shares.budget if self.shares else None

    @property
    def stride(self) -> int:
        """Slots given up at once while decoding."""
        return self.shares.stride(self.policy) if self.shares else 1
