"""Which slot to give up next: pure functions on tensors, no state. Read this file first.

H2O (arXiv 2306.14048, section 4) in four lines. Every attention layer, row and KV head keeps at most
`budget` tokens. A token's score grows by the attention that it receives. The newest `recent` tokens are
safe. When one token too many is held, the lowest score among the others goes, for ever.

A policy here is that frame with two things left open: how the score forgets, and what priority is made of
it. Shapes: R rows, H KV heads, S slots, D head size.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from h2o_chat.errors import BudgetError


@dataclass(frozen=True)
class Slots:
    """What a policy may look at. Empty slots have position -1 and score 0."""

    positions: Tensor
    """[R, H, S] int32, true positions in the conversation."""
    score: Tensor
    """[R, H, S] attention received so far, forgotten at the policy's rate."""
    values: Tensor
    """[R, H, S, D]"""
    unlike: Tensor
    """[R, H, S] minus the cosine of a key, before RoPE, to the mean of the kept keys; taken
    every 16 tokens anew (`H2OLayer._look`).
    Zeros for a policy that does not look at keys."""


def accumulated_attention(slots: Slots) -> Tensor:
    """The published score: the sum of all attention received (2306.14048, section 4.2). [R, H, S]"""
    return slots.score


def output_change(slots: Slots) -> Tensor:
    """How far the layer's output would move if this token went (CAOTE, arXiv 2504.14051). [R, H, S]

    With `a` the share of attention and `o = sum(a v)`, dropping token i moves the output by
    `a_i / (1 - a_i) * ||v_i - o||`: a token that is much attended to but says what the others say anyway
    can go.
    """
    total = slots.score.sum(-1, keepdim=True).clamp_min(torch.finfo(slots.score.dtype).tiny)
    share = slots.score / total  # [R, H, S]
    values = slots.values.to(share.dtype)
    output = share.unsqueeze(-2) @ values  # [R, H, 1, D]
    distance = torch.linalg.vector_norm(values - output, dim=-1)  # [R, H, S]
    # The bound keeps 1/0 out where nothing else was ever attended to.
    others = (1 - share).clamp_min(torch.finfo(share.dtype).eps)
    change: Tensor = share / others * distance
    return change


def unlike_others(slots: Slots) -> Tensor:
    """Distinct keys stay (KeyDiff, arXiv 2504.15364, which compares them after RoPE). [R, H, S]

    Nobody attends to a name until it is asked for, so attention received cannot keep it. Its key is unlike
    the others from the start.
    """
    return slots.unlike


def heavy_or_unlike(weight: float) -> Callable[[Slots], Tensor]:
    """rank(unlike the others) + weight * rank(output change): what will be asked for, and what is in use."""

    def priority(slots: Slots) -> Tensor:
        return ranks(slots.unlike, slots.positions) + weight * ranks(output_change(slots), slots.positions)

    return priority


def ranks(scores: Tensor, positions: Tensor) -> Tensor:
    """0 for the lowest score of the tokens held to 1 for the highest; empty slots get 0. [R, H, S]"""
    held = positions >= 0
    order = scores.masked_fill(~held, -torch.inf).argsort(dim=-1, stable=True)
    places = torch.empty_like(scores).scatter_(
        -1, order, torch.arange(scores.shape[-1], dtype=scores.dtype, device=scores.device).expand_as(scores)
    )
    empty = (~held).sum(-1, keepdim=True)
    return (places - empty).clamp_min(0) / (scores.shape[-1] - empty - 1).clamp_min(1)


def by_lot(slots: Slots) -> Tensor:
    """A draw for each token and head that never changes (Random Attention, arXiv 2609.03430). [R, H, S]"""
    head = torch.arange(slots.positions.shape[1], device=slots.positions.device)[:, None]
    drawn = (slots.positions.long() * 2_654_435_761 + head * 40_503 + 12_345) & 0xFFFFFFFF
    for shift, factor in ((16, 0x45D9F3B), (16, 0x45D9F3B), (16, 1)):  # mixed, as hashes are
        drawn = ((drawn ^ (drawn >> shift)) * factor) & 0xFFFFFFFF
    return drawn.to(slots.score.dtype)


def oldest_first(slots: Slots) -> Tensor:
    """No opinion: ties drop the oldest, which leaves a sliding window. [R, H, S]"""
    return torch.zeros_like(slots.score)


@dataclass(frozen=True)
class Policy:
    """One row of the table below."""

    priority: Callable[[Slots], Tensor]
    forget: float
    """score = forget * score + attention received, at every query."""
    sinks: int
    """First tokens protected unless told otherwise (attention sinks, StreamingLLM, 2309.17453)."""
    heavy: bool
    """Whether part of the budget is for heavy hitters; else all but the sinks is recent."""
    recent: float = 0.5
    """Share of the budget that the newest tokens have, where part of it is for heavy hitters."""
    keys: bool = False
    """Whether it looks at keys."""


POLICIES: dict[str, Policy] = {
    "h2o": Policy(output_change, forget=0.95, sinks=4, heavy=True),
    "h2o-paper": Policy(accumulated_attention, forget=1.0, sinks=0, heavy=True),
    "h2o-recall": Policy(heavy_or_unlike(0.5), forget=0.95, sinks=4, heavy=True, recent=0.25, keys=True),
    "distinct": Policy(unlike_others, forget=1.0, sinks=4, heavy=True, recent=0.25, keys=True),
    "random": Policy(by_lot, forget=1.0, sinks=4, heavy=True, recent=0.25),
    "heavy-only": Policy(accumulated_attention, forget=1.0, sinks=0, heavy=True, recent=0.0),
    # The newest query alone decides (TOVA, arXiv 2401.06104).
    "last-query": Policy(accumulated_attention, forget=0.0, sinks=0, heavy=True, recent=0.0),
    "window": Policy(oldest_first, forget=1.0, sinks=0, heavy=False),
    "streaming": Policy(oldest_first, forget=1.0, sinks=4, heavy=False),
    # Keeps everything: its slots grow instead of being given up, so its priority is never asked for.
    "full": Policy(oldest_first, forget=1.0, sinks=0, heavy=False),
}


@dataclass(frozen=True)
class Shares:
    """How a budget is divided: sinks + recent + heavy = budget."""

    budget: int
    sinks: int
    recent: int

    @property
    def most_protected(self) -> int:
        """Sinks, system prompt and pins together may hold this many slots."""
        return max(self.sinks, (self.budget - self.recent) // 2)


def divide(name: str, budget: int, sinks: int | None = None, recent: int | None = None) -> Shares:
    """The shares of a budget under a policy; None takes the policy's own number.

    Raises:
        BudgetError: the parts do not fit; says the numbers and the smallest budget that works.
    """
    for what, value in (("sinks", sinks), ("recent", recent)):
        if value is not None and value < 0:
            raise BudgetError(f"{what}={value} slots cannot be protected.", "It must be 0 or more.")
    policy = POLICIES[name]
    protected = policy.sinks if sinks is None else sinks

    def shares(size: int) -> Shares:
        own = int(size * policy.recent) if policy.heavy else size - protected
        return Shares(size, protected, own if recent is None else recent)

    def works(s: Shares) -> bool:
        if policy.heavy:
            return s.sinks + s.recent < s.budget
        return s.sinks < s.budget and s.sinks + s.recent <= s.budget

    asked = shares(budget)
    if not works(asked):
        smallest = next(size for size in count(1) if works(shares(size)))
        raise BudgetError(
            f"A budget of {budget} slots cannot hold {asked.sinks} sinks, {asked.recent} recent"
            f" and at least {int(policy.heavy)} heavy tokens under the policy {name!r}.",
            f"The smallest budget that works here is {smallest}.",
        )
    return asked


def priorities(
    policy: Policy, slots: Slots, protected: Tensor, recent_from: Tensor, visible_from: Tensor
) -> Tensor:
    """The policy's priority inside the frame that all policies share; the lowest goes first. [R, H, S]

    Args:
        protected: [R, H, S] bool: sinks, system prompt, pins.
        recent_from: [R] positions from here on are recent, hence safe.
        visible_from: [R] positions before this can be seen by no later query (sliding-window layers): they
            go first, protected ones too. Empty slots (-1) fall under the same rule.
    """
    safe = protected | (slots.positions >= recent_from[:, None, None])
    priority = policy.priority(slots).masked_fill(safe, torch.inf)
    return priority.masked_fill(slots.positions < visible_from[:, None, None], -torch.inf)


def lowest(priority: Tensor, positions: Tensor) -> Tensor:
    """The slot with the lowest priority; ties drop the oldest. [R, H, S] -> [R, H]"""
    tied = priority == priority.amin(-1, keepdim=True)
    return positions.masked_fill(~tied, torch.iinfo(positions.dtype).max).argmin(-1)


def highest(priority: Tensor, positions: Tensor, keep: int) -> Tensor:
    """The `keep` slots with the highest priority; ties drop the oldest. [R, H, S] -> [R, H, keep]"""
    by_age = positions.argsort(dim=-1, stable=True)  # oldest first, so that a stable sort breaks ties
    order = priority.gather(-1, by_age).argsort(dim=-1, stable=True)[..., -keep:]
    return by_age.gather(-1, order)
