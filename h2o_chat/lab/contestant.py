"""Who is compared: a policy with numbers of its own, at some budget."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from h2o_chat.base.config import KV_DTYPES, OFFLINE, POLICIES
from h2o_chat.base.errors import UsageError
from h2o_chat.cache.cache import H2OCache
from h2o_chat.cache.policies import Shares, divide
from h2o_chat.cache.rope import Positions
from h2o_chat.lab.belady import any_policy
from h2o_chat.models.fits import equal_slots
from h2o_chat.models.load import Loaded

MOST_DIGITS = 9
"""Of a number of slots."""
_EXAMPLE = "Write h2o:sinks=0,recent=8,chunk=16,kv=int8."


@dataclass(frozen=True)
class Contestant:
    """A policy with its own numbers; None leaves one to the policy."""

    policy: str
    sinks: int | None = None
    recent: int | None = None
    chunk: int | None = None
    """Prompt tokens that attend before the next eviction."""
    kv: str = "auto"
    """Precision of keys and values in the slots."""

    @classmethod
    def parse(cls, text: str) -> "Contestant":
        """`h2o` or `h2o:sinks=0,recent=8,chunk=16,kv=int8`.

        Raises:
            UsageError: not such a text, or an unknown policy.
        """
        name, colon, numbers = text.partition(":")
        known = [policy for policy in (*POLICIES, *OFFLINE) if policy != "full"]
        if name not in known:
            raise UsageError(f"Policy {name!r} cannot be compared.", f"One of: {', '.join(known)}.")
        given: dict[str, Any] = {}
        for part in numbers.split(",") if colon else ():
            key, _, value = part.partition("=")
            if key == "kv" and value in KV_DTYPES:
                given[key] = value
                continue
            known_key = key in {field.name for field in fields(cls)} - {"policy", "kv"}
            if not known_key or not value.isdecimal() or len(value) > MOST_DIGITS:
                raise UsageError(f"{part!r} in {text!r} says nothing.", _EXAMPLE)
            given[key] = int(value)
        return cls(name, **given)

    def __str__(self) -> str:
        given = {field.name: (getattr(self, field.name), field.default) for field in fields(self)[1:]}
        numbers = ",".join(f"{name}={value}" for name, (value, usual) in given.items() if value != usual)
        return f"{self.policy}:{numbers}" if numbers else self.policy

    def shares(self, budget: int) -> Shares:
        """How it divides a budget.

        Raises:
            BudgetError: the parts do not fit.
        """
        return divide(any_policy(self.policy), budget, self.sinks, self.recent)

    def cache(self, budget: int, positions: Positions) -> H2OCache:
        """An empty cache."""
        return H2OCache(
            budget,
            policy=self.policy,
            sinks=self.sinks,
            recent=self.recent,
            chunk=self.chunk,
            positions=positions,
            kv=self.kv,
        )


def crossed(policies: Sequence[str], kv_dtypes: Sequence[str]) -> list[Contestant]:
    """Every policy in every precision; none named leaves what each says of itself.

    Raises:
        UsageError: one is no contestant, or no precision.
    """
    for kv in kv_dtypes:
        if kv not in KV_DTYPES:
            raise UsageError(f"--kv-dtype {kv!r} is not known.", f"One of: {', '.join(KV_DTYPES)}.")
    contestants = [Contestant.parse(policy) for policy in policies]
    return [replace(one, kv=kv) for one in contestants for kv in kv_dtypes] if kv_dtypes else contestants


def slots_of(loaded: Loaded, contestant: Contestant, budget: int, equal_bytes: bool) -> int:
    """The budget that a contestant gets: as asked, or what fits into as many bytes in its own precision."""
    if not equal_bytes:
        return budget
    return equal_slots(loaded.sizes, loaded.precision.itemsize, contestant.kv, budget)


def full_cache(positions: Positions) -> H2OCache:
    """One that keeps everything: what all are compared with."""
    return H2OCache(policy="full", positions=positions)
