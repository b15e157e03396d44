"""Who is compared: a policy with numbers of its own, at some budget."""

from dataclasses import dataclass, fields

from h2o_chat.cache import H2OCache
from h2o_chat.errors import UsageError
from h2o_chat.policies import POLICIES, Shares, divide
from h2o_chat.rope import Positions

MOST_DIGITS = 9
"""Of a number of slots."""
_EXAMPLE = "Write h2o:sinks=0,recent=8,chunk=16."


@dataclass(frozen=True)
class Contestant:
    """A policy with its own numbers; None leaves one to the policy."""

    policy: str
    sinks: int | None = None
    recent: int | None = None
    chunk: int | None = None
    """Prompt tokens that attend before the next eviction."""

    @classmethod
    def parse(cls, text: str) -> "Contestant":
        """`h2o` or `h2o:sinks=0,recent=8,chunk=16`.

        Raises:
            UsageError: not such a text, or an unknown policy.
        """
        name, colon, numbers = text.partition(":")
        if name not in POLICIES or name == "full":
            known = ", ".join(policy for policy in POLICIES if policy != "full")
            raise UsageError(f"Policy {name!r} cannot be compared.", f"One of: {known}.")
        given: dict[str, int] = {}
        for part in numbers.split(",") if colon else ():
            key, _, value = part.partition("=")
            known_key = key in {field.name for field in fields(cls)} - {"policy"}
            if not known_key or not value.isdecimal() or len(value) > MOST_DIGITS:
                raise UsageError(f"{part!r} in {text!r} says nothing.", _EXAMPLE)
            given[key] = int(value)
        return cls(name, **given)

    def __str__(self) -> str:
        given = {field.name: getattr(self, field.name) for field in fields(self)[1:]}
        numbers = ",".join(f"{name}={value}" for name, value in given.items() if value is not None)
        return f"{self.policy}:{numbers}" if numbers else self.policy

    def shares(self, budget: int) -> Shares:
        """How it divides a budget.

        Raises:
            BudgetError: the parts do not fit.
        """
        return divide(self.policy, budget, self.sinks, self.recent)

    def cache(self, budget: int, positions: Positions) -> H2OCache:
        """An empty cache."""
        return H2OCache(
            budget,
            policy=self.policy,
            sinks=self.sinks,
            recent=self.recent,
            chunk=self.chunk,
            positions=positions,
        )


def full_cache(positions: Positions) -> H2OCache:
    """One that keeps everything: what all are compared with."""
    return H2OCache(policy="full", positions=positions)
