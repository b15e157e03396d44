"""Runs of a comparison: the cache that keeps everything first, then every policy at every budget."""

from collections.abc import Sequence
from dataclasses import dataclass

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import UsageError
from h2o_chat.lab.shared.policy_variant import PolicyVariant


@dataclass(frozen=True)
class Run:
    """One variant at one budget; without them the full cache."""

    variant: PolicyVariant | None = None
    budget: int | None = None

    @property
    def name(self) -> str:
        return "full" if self.variant is None else str(self.variant)

    def settings(self) -> Settings:
        """Settings for an engine.

        Raises:
            UsageError: the variant forgets at a rate of its own, which an engine does not take.
        """
        one = self.variant
        if one is None or self.budget is None:
            return Settings(policy="full", events_every=0)
        if one.ranking != one.policy:
            raise UsageError(
                f"{one} has a rate of forgetting that an engine does not take.",
                "forget= goes with eval perplexity.",
            )
        return Settings(
            policy=one.policy,  # type: ignore[arg-type]
            budget=self.budget,
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
    for variant in [PolicyVariant.parse(policy) for policy in policies]:
        for budget in budgets:
            variant.shares(budget)  # refuses what does not fit, before anything is measured
            runs.append(Run(variant, budget))
    return runs
