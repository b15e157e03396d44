"""A policy under comparison, with numbers of its own, and the runs of a comparison."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

from h2o_chat.base.config import KV_DTYPES, POLICY_NAMES, Settings
from h2o_chat.base.errors import UsageError
from h2o_chat.policies.references import named
from h2o_chat.policies.shares import Shares, divide

MOST_DIGITS = 9
"""Longest number of slots, in digits."""


@dataclass(frozen=True)
class PolicyVariant:
    """A policy with its own numbers; None leaves one to the policy."""

    policy: str
    sinks: int | None = None
    recent: int | None = None
    chunk: int | None = None
    """Prompt tokens that attend before the next eviction."""
    kv: str = "auto"
    """Precision of keys and values in the slots."""

    @classmethod
    def parse(cls, text: str) -> "PolicyVariant":
        """`h2o`, or `h2o:sinks=0,recent=8,chunk=16,kv=int8`.

        Raises:
            UsageError: not such a text, or an unknown policy.
        """
        name, colon, numbers = text.partition(":")
        known = [policy for policy in POLICY_NAMES if policy != "full"]
        if name not in known:
            raise UsageError(f"Policy {name!r} cannot be compared.", f"One of: {', '.join(known)}.")
        given: dict[str, Any] = {}
        for part in numbers.split(",") if colon else ():
            key, _, value = part.partition("=")
            if key == "kv" and value in KV_DTYPES:
                given[key] = value
            elif key in ("sinks", "recent", "chunk") and value.isdecimal() and len(value) <= MOST_DIGITS:
                given[key] = int(value)
            else:
                example = "Write h2o:sinks=0,recent=8,chunk=16,kv=int8."
                raise UsageError(f"{part!r} in {text!r} says nothing.", example)
        return cls(name, **given)

    def __str__(self) -> str:
        own = [(field, getattr(self, field.name)) for field in fields(self)[1:]]
        numbers = ",".join(f"{field.name}={value}" for field, value in own if value != field.default)
        return f"{self.policy}:{numbers}" if numbers else self.policy

    def shares(self, budget: int) -> Shares:
        """Divides a budget.

        Raises:
            BudgetError: the parts do not fit.
        """
        return divide(named(self.policy), budget, self.sinks, self.recent)


@dataclass(frozen=True)
class Run:
    """One variant at one budget; without them the full cache."""

    variant: PolicyVariant = PolicyVariant("full")
    budget: int | None = None

    @property
    def name(self) -> str:
        return str(self.variant)

    def settings(self) -> Settings:
        one = self.variant
        return Settings(
            policy=one.policy,  # type: ignore[arg-type]
            budget=self.budget or Settings.budget,
            sinks=one.sinks,
            recent=one.recent,
            chunk=one.chunk,
            kv_dtype=one.kv,  # type: ignore[arg-type]
            events_every=0,
        )


def runs_of(policies: Sequence[str], budgets: Sequence[int]) -> list[Run]:
    """The full cache, then all others.

    Raises:
        UsageError: an unknown policy.
        BudgetError: a policy's parts do not fit a budget.
    """
    runs = [Run()]
    for variant, budget in product(map(PolicyVariant.parse, policies), budgets):
        variant.shares(budget)  # refuses what does not fit, before anything is measured
        runs.append(Run(variant, budget))
    return runs
