"""Who is compared: the cache that keeps everything first, then every policy at every budget."""

from collections.abc import Sequence
from dataclasses import dataclass

from h2o_chat.cache import H2OCache
from h2o_chat.config import Settings
from h2o_chat.errors import UsageError
from h2o_chat.lab.contestant import Contestant
from h2o_chat.policies import POLICIES, divide
from h2o_chat.rope import Positions


@dataclass(frozen=True)
class Run:
    """One policy at one budget, or the full cache."""

    name: str
    policy: str
    budget: int | None
    """None: the full cache."""
    sinks: int = 0
    recent: int = 0
    kv: str = "auto"

    def settings(self, chunk: int | None = None) -> Settings:
        """As an engine wants them."""
        if self.budget is None:
            return Settings(policy="full", chunk=chunk, events_every=0)
        return Settings(
            policy=self.policy,  # type: ignore[arg-type]
            budget=self.budget,
            sinks=self.sinks,
            recent=self.recent,
            chunk=chunk,
            kv_dtype=self.kv,  # type: ignore[arg-type]
            events_every=0,
        )

    def cache(self, positions: Positions) -> H2OCache:
        """A fresh one."""
        if self.budget is None:
            return H2OCache(policy="full", positions=positions)
        return H2OCache(
            self.budget,
            policy=self.policy,
            sinks=self.sinks,
            recent=self.recent,
            positions=positions,
            kv=self.kv,
        )


def runs_of(policies: Sequence[str], budgets: Sequence[int]) -> list[Run]:
    """The full cache, then all others.

    Raises:
        UsageError: an unknown policy, or one that has to know the future.
        BudgetError: a policy's parts do not fit a budget.
    """
    runs = [Run("full", "full", None)]
    for contestant in [Contestant.parse(policy) for policy in policies]:
        if POLICIES[contestant.policy].offline:
            raise UsageError(f"{contestant} has to know the future, which is not known here.")
        for budget in budgets:
            parts = divide(contestant.policy, budget, contestant.sinks, contestant.recent)
            numbers = (parts.sinks, parts.recent, contestant.kv)
            runs.append(Run(str(contestant), contestant.policy, budget, *numbers))
    return runs
