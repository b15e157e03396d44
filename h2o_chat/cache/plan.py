"""What all layers of one cache share, chosen once."""

from dataclasses import dataclass

from h2o_chat.base.config import PREFILLS, Prefill
from h2o_chat.base.errors import UsageError
from h2o_chat.cache.clock import Clock
from h2o_chat.cache.distance import Distance, distance_of
from h2o_chat.cache.named import named
from h2o_chat.cache.policies import Policy, Shares, divide
from h2o_chat.cache.quantized import BITS
from h2o_chat.cache.rope import Positions

GROW = 256
"""Slots that are added at a time where nothing is given up."""


@dataclass(frozen=True)
class Plan:
    """How the slots of a cache are used."""

    policy: Policy
    shares: Shares
    asked: tuple[int | None, int | None]  # sinks and recent tokens as the caller gave them
    chunk: int  # prompt tokens that attend before the next eviction, where prefill is chunked
    prefill: Prefill  # full: all tokens of one call attend to each other before any is evicted
    observe: bool  # keep what `lost` is made of
    bits: int | None  # of a number in the slots (`quantized.py`); None: keys and values as the model has them
    distance: Distance | None  # None leaves positions to the caller

    @property
    def budget(self) -> int:
        """Slots that may be in use between two steps."""
        return self.shares.budget

    @property
    def stride(self) -> int:
        """Slots given up at once while decoding."""
        return self.shares.stride(self.policy)

    def clock(self) -> Clock:
        """Of a row that nothing was fed to."""
        return Clock(protect_below=self.shares.sinks)

    @property
    def slots(self) -> int:
        """Slots of a new arena, S."""
        return (self.budget if self.shares.bounded else GROW) + 1


def plan_of(
    budget: int,
    policy: str | Policy,
    sinks: int | None,
    recent: int | None,
    chunk: int | None,
    prefill: Prefill,
    kv: str,
    observe: bool,
    trained: Positions | None,
    rebases: bool,
) -> Plan:
    """The plan of an `H2OCache` with these arguments; raises what it raises."""
    for what, value in (("budget", budget), ("sinks", sinks), ("recent", recent), ("chunk", chunk)):
        if type(value) is not int and not (value is None and what != "budget"):
            raise UsageError(f"{what}={value!r} is no number of tokens.", "Give an int.")
    if kv != "auto" and kv not in BITS:
        raise UsageError(f"K/V precision {kv!r} is not known.", f"One of: auto, {', '.join(BITS)}.")
    if prefill not in PREFILLS:
        raise UsageError(f"Prefill {prefill!r} is not known.", f"One of: {', '.join(PREFILLS)}.")
    policy = named(policy) if isinstance(policy, str) else policy
    shares = divide(policy, budget, sinks, recent)
    if chunk is None:
        chunk = max(8, budget // 4) if shares.bounded else GROW
    if chunk < 1:
        raise UsageError(f"A chunk of {chunk} tokens cannot be read.", "It must be at least 1.")
    distance = None
    if trained is not None:
        chunk = min(chunk, trained.window)
        distance = distance_of(trained, policy, shares, rebases)
    return Plan(policy, shares, (sinks, recent), chunk, prefill, observe, BITS.get(kv), distance)
