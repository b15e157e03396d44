"""How a budget is divided, and how much of it may be protected: plain numbers. No torch of its own."""

from bisect import bisect_left
from dataclasses import dataclass

from h2o_chat.base.errors import BudgetError
from h2o_chat.policies.policies import Policy

MOST_TOKENS = 2**31 - 2**16  # positions are int32


@dataclass(frozen=True)
class Shares:
    """How a budget is divided: sinks + recent + heavy = budget."""

    budget: int
    sinks: int
    recent: int

    @property
    def bounded(self) -> bool:
        """Whether the budget is one."""
        return self.budget < MOST_TOKENS

    @property
    def most_protected(self) -> int:
        """Sinks, system prompt and pins together may hold this many slots."""
        return max(self.sinks, (self.budget - self.recent) // 2) if self.bounded else self.budget

    def stride(self, policy: Policy) -> int:
        """Slots given up at once: so many that what is safe always fits."""
        most = self.budget - self.recent - self.most_protected
        return max(1, min(int(self.budget * policy.stride), most))


BOUNDLESS = Shares(MOST_TOKENS, sinks=0, recent=MOST_TOKENS)  # of `full`, which evicts nothing


def divide(policy: Policy, budget: int, sinks: int | None = None, recent: int | None = None) -> Shares:
    """The shares of a budget under a policy; None takes the policy's own number.

    Raises:
        BudgetError: the parts do not fit; says the numbers and the smallest budget that works.
    """
    if not policy.bounded:
        return BOUNDLESS
    for what, value in (("sinks", sinks), ("recent", recent)):
        if value is not None and value < 0:
            raise BudgetError(f"{what}={value} slots cannot be protected.", "It must be 0 or more.")

    def shares(size: int) -> Shares:
        most = size // policy.slots_per_sink if policy.slots_per_sink else policy.sinks
        protected = min(policy.sinks, most) if sinks is None else sinks
        own = int(size * policy.recent) if policy.heavy else size - protected
        return Shares(size, protected, own if recent is None else recent)

    def works(size: int) -> bool:
        parts = shares(size)
        return parts.sinks < size and parts.sinks + parts.recent + policy.heavy <= size

    asked = shares(budget)
    if not works(budget):
        smallest = bisect_left(range(1 << 62), True, key=works)
        raise BudgetError(
            f"A budget of {budget} slots cannot hold {asked.sinks} sinks, {asked.recent} recent"
            f" and at least {int(policy.heavy)} heavy tokens under the policy {policy.name!r}.",
            f"The smallest budget that works here is {smallest}.",
        )
    return asked
