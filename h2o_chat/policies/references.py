"""Policies kept only for comparison: published ones, and baselines.

As in `policies.py`: pure functions, the lowest priority goes first, ties drop the oldest. All of them
can generate, so every place that takes the name of a policy takes these too.

Shapes: L layers, R rows, H KV heads, G query heads per KV head, S slots.
"""

from dataclasses import replace

import torch
from torch import Tensor

from h2o_chat.base.config import POLICY_NAMES
from h2o_chat.base.errors import UsageError
from h2o_chat.policies.policies import POLICIES, Policy, Priority, Slots, accumulated_attention
from h2o_chat.policies.scores import PerRow, Received, summed


def output_change(slots: Slots) -> Tensor:
    """How far the layer's output would move if this token went (CAOTE, arXiv 2504.14051). [L, R, H, S]

    With `a` the share of attention and `o = sum(a v)`, dropping token i moves the output by
    `a_i / (1 - a_i) * ||v_i - o||`: a much attended token that says what the others say can go.
    """
    score = slots.score.sum(-1)
    share = score / score.sum(-1, keepdim=True).clamp_min(torch.finfo(score.dtype).tiny)  # [L, R, H, S]
    values = slots.values.to(share.dtype)
    output = share.unsqueeze(-2) @ values  # [L, R, H, 1, D]
    distance = torch.linalg.vector_norm(values - output, dim=-1)  # [L, R, H, S]
    # The bound keeps 1/0 out where nothing else was ever attended to.
    others = (1 - share).clamp_min(torch.finfo(share.dtype).eps)
    change: Tensor = share / others * distance
    return change


def by_lot(slots: Slots) -> Tensor:
    """A draw for each token and head that never changes (Random Attention, arXiv 2609.03430). [L, R, H, S]"""
    head = torch.arange(slots.positions.shape[-2], device=slots.positions.device)[:, None]
    drawn = (slots.positions.long() * 2_654_435_761 + head * 40_503 + 12_345) & 0xFFFFFFFF
    for shift, factor in ((16, 0x45D9F3B), (16, 0x45D9F3B), (16, 1)):  # mixed, as hashes are
        drawn = ((drawn ^ (drawn >> shift)) * factor) & 0xFFFFFFFF
    return drawn.to(slots.score.dtype)


def last_used(slots: Slots) -> Tensor:
    """Least recently used goes (LRU); `score` is 1 + the position of its last use. [L, R, H, S]

    In fp32 positions are exact up to 16.7 million; past that, neighbours tie.
    """
    return torch.maximum(slots.score[..., 0], slots.positions.to(slots.score.dtype) + 1)


def pooled(kernel: int) -> Priority:
    """A token is worth what its best neighbour is: the maximum over `kernel` tokens held, by age.

    SnapKV (arXiv 2404.14469, section 4) pools so that what stands around a token stays with it.
    """

    def priority(slots: Slots) -> Tensor:
        by_age = slots.positions.argsort(dim=-1, stable=True)
        ordered = slots.score.sum(-1).gather(-1, by_age)
        best = torch.nn.functional.max_pool1d(ordered.flatten(0, -2), kernel, stride=1, padding=kernel // 2)
        return torch.empty_like(ordered).scatter_(-1, by_age, best.view_as(ordered))

    return priority


class LastUse(Received):
    """1 + the position of the last query that used a token: that gave it more than its fair share, 1 / how
    many it sees. One number for all query heads."""

    def width(self, groups: int) -> int:
        return 1

    def used(self, attention: Tensor) -> Tensor:
        """[..., R, H, G, N, T] -> [..., R, H, N, T] 1 where the query uses the token, else 0."""
        visible = (attention[..., 0, :, :] > 0).sum(-1, keepdim=True)
        return (attention.sum(-3) * visible > attention.shape[-3]).to(attention.dtype)

    def gained(self, decay_factor: float, attention: Tensor, at: Tensor, later: Tensor) -> Tensor:
        used = self.used(attention)
        return (used * (at + 1).to(used.dtype)[:, None, :, None]).amax(-2).unsqueeze(-1)

    def gained_at_once(self, decay_factor: float, attention: Tensor, at: Tensor) -> Tensor:
        return self.gained(decay_factor, attention.unsqueeze(-2), at, torch.zeros_like(at))

    def add(self, decay_factor: float, state: Tensor, gain: Tensor, first: PerRow, count: PerRow) -> Tensor:
        return torch.maximum(state, gain)

    def together(self, one: Tensor, other: Tensor) -> Tensor:
        return torch.maximum(one, other)


class LastQueries(Received):
    """A pass of at least 32 queries (a prompt chunk, or a whole prompt) counts by its last 32 alone, in full,
    and earlier scores are forgotten."""

    last = 32

    def gained(self, decay_factor: float, attention: Tensor, at: Tensor, later: Tensor) -> Tensor:
        return summed(attention, (later < self.last).to(attention.dtype))

    def add(self, decay_factor: float, state: Tensor, gain: Tensor, first: PerRow, count: PerRow) -> Tensor:
        few = [queries < self.last for queries in count]
        short = torch.tensor(few, dtype=state.dtype, device=state.device)
        return super().add(decay_factor, state * short[:, None, None, None], gain, first, count)


REFERENCES: dict[str, Policy] = {
    # Output change with a score that decays: CAOTE (arXiv 2504.14051) on it; the default before.
    "caote": Policy(output_change, decay_factor=0.95, sinks=4, heavy=True),
    "random": Policy(by_lot, decay_factor=1.0, sinks=4, heavy=True, recent=0.25),
    "heavy-only": Policy(accumulated_attention, decay_factor=1.0, sinks=0, heavy=True, recent=0.0),
    # The newest query alone decides (TOVA, arXiv 2401.06104).
    "last-query": Policy(accumulated_attention, decay_factor=0.0, sinks=0, heavy=True, recent=0.0),
    # A cache as processors have it, over attention: recency of use.
    "lru": Policy(last_used, decay_factor=1.0, sinks=0, heavy=True, recent=0.25, scores=LastUse()),
    # SnapKV (arXiv 2404.14469): a prompt is judged by its last 32 queries, neighbours stay together. It
    # evicts nothing while decoding; here each generated token takes 1/32 of a score and adds its attention.
    "snapkv": Policy(pooled(7), decay_factor=31 / 32, sinks=0, heavy=True, recent=0.25, scores=LastQueries()),
}
REFERENCES = {name: replace(policy, name=name) for name, policy in REFERENCES.items()}


def named(name: str) -> Policy:
    """The policy of that name; raises UsageError if there is none."""
    known = POLICIES | REFERENCES
    if name not in known:
        raise UsageError(f"Policy {name!r} is not known.", f"One of: {', '.join(POLICY_NAMES)}.")
    return known[name]
