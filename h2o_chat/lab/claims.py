"""The paper's claims (arXiv 2306.14048) as figures of plain tensors: pure functions, no model.

Shapes: R rows, H heads, N queries, S positions, D head size; M sampled sets.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SPARSE_BELOW = 0.01
"""Of the largest entry of its row: what counts as zero (section 3.1)."""
NEAR_TOKENS = 5
"""Words this far apart occur together."""
TOLERANCE = 1e-9

CONCAVE: dict[str, Callable[[Tensor], Tensor]] = {
    "z": lambda z: z,
    "sqrt(z+1)": lambda z: (z + 1).sqrt(),
    "log(z+1)": lambda z: (z + 1).log(),
}
"""h of the appendix: with h'' <= 0 more is worth less where much is kept already."""


def sparse_entries(probabilities: Tensor, first: int) -> tuple[Tensor, int]:
    """How many visible entries of a block's rows are below 1% of their row's largest. [R], and of how many

    Args:
        probabilities: [R, Q, N, S], of queries at positions `first` onwards, which see none after them.
    """
    heads, queries, positions = probabilities.shape[1:]
    at = torch.arange(first, first + queries, device=probabilities.device)
    visible = torch.arange(positions, device=probabilities.device) <= at[:, None]  # [N, S]
    small = probabilities < SPARSE_BELOW * probabilities.amax(-1, keepdim=True)
    return (small & visible).sum((1, 2, 3)), heads * int(visible.sum())


@dataclass(frozen=True)
class PowerLaw:
    """score of rank r = constant * r ** -exponent, a straight line on two logarithmic axes."""

    exponent: float
    r2: float
    """Share of the variance of the logarithm that the line explains."""
    exponential_r2: float
    """The same for score = constant * exp(-r * rate): a power law should do better."""


def power_law(scores: Tensor) -> PowerLaw:
    """Least squares of log score on log rank, over all scores [S] above 0, the highest first."""
    ordered = scores.double().flatten().sort(descending=True).values
    logs = ordered[ordered > 0].log()
    rank = torch.arange(1, len(logs) + 1, dtype=torch.float64)
    slope, r2 = _line(rank.log(), logs)
    return PowerLaw(-slope, r2, _line(rank, logs)[1])


def uniform_law(length: int) -> PowerLaw:
    """Of a document of so many tokens in which each query attends to all before it, and itself, alike.

    Token j then receives 1/(j + 1) + ... + 1/length: the older, the more, with no heavy hitter at all.
    """
    return power_law((1 / torch.arange(1, length + 1, dtype=torch.float64)).flip(0).cumsum(0))


def _line(x: Tensor, y: Tensor) -> tuple[float, float]:
    """Slope and R2 of the least-squares line."""
    x, y = x.cpu() - x.mean().cpu(), y.cpu() - y.mean().cpu()
    if float(y.square().sum()) == 0:
        return 0.0, 1.0
    slope = float((x * y).sum() / x.square().sum())
    return slope, 1 - float((y - slope * x).square().sum() / y.square().sum())


def company(ids: Sequence[Sequence[int]]) -> dict[int, int]:
    """How many different tokens stand within `NEAR_TOKENS` of each token, over all documents."""
    near: dict[int, set[int]] = defaultdict(set)
    for row in ids:
        for at, token in enumerate(row):
            near[token].update(row[max(0, at - NEAR_TOKENS) : at], row[at + 1 : at + 1 + NEAR_TOKENS])
    return {token: len(others) for token, others in near.items()}


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's: the correlation of the ranks, equal values sharing theirs; 0 where one is constant."""
    a, b = _ranks(one), _ranks(other)
    a, b = a - a.mean(), b - b.mean()
    norm = float(a.norm() * b.norm())
    return float((a * b).sum()) / norm if norm else 0.0


def _ranks(values: Sequence[float]) -> Tensor:
    given = torch.tensor(values, dtype=torch.float64)
    ordered = given.sort().values
    first, end = (torch.searchsorted(ordered, given, right=after) for after in (False, True))
    return (first + end + 1).double() / 2


def top_overlap(one: Tensor, other: Tensor, keep: int) -> Tensor:
    """Share of the `keep` highest of one score that are among those of the other. [..., S] -> [...]"""
    chosen = torch.zeros_like(one, dtype=torch.bool).scatter_(-1, one.topk(keep).indices, True)
    return chosen.gather(-1, other.topk(keep).indices).double().mean(-1)


def diminishing(
    probabilities: Tensor, values: Tensor, samples: int, generator: torch.Generator
) -> dict[str, float]:
    """How often the greedy choice gains no more from a larger set than from a smaller one inside it.

    Sets A in B are drawn, 1/8 and 1/4 of the positions; x is the token outside B with the highest accumulated
    attention, which is what greedy eviction would keep. F has diminishing returns for them if
    F(A + x) - F(A) >= F(B + x) - F(B). F = h(z), with z either of

    - mass: attention that the set would receive, summed over the queries, as the paper has it;
    - output: 1 - ||o - o_A|| / ||o||, how near the layer's output stays if the set alone is attended to
      (softmax over the set, as after eviction), averaged over the queries; not below 0.

    Args:
        probabilities: [N, S] of one head's queries; values: [S, D].

    Returns:
        The share for each "mass h" and "output h".
    """
    positions = probabilities.shape[-1]
    probabilities, values = probabilities.double().cpu(), values.double().cpu()
    order = torch.rand(samples, positions, generator=generator).argsort(1)
    small, large = positions // 8, positions // 4
    inner, outer = (
        torch.zeros(samples, positions, dtype=torch.bool).scatter_(1, order[:, :size], True)
        for size in (small, large)
    )
    choice = probabilities.sum(0).expand(samples, -1).masked_fill(outer, -math.inf).argmax(1)  # [M]
    chosen = torch.nn.functional.one_hot(choice, positions).bool()
    output = probabilities @ values  # [N, D]

    def worth(sets: Tensor) -> dict[str, Tensor]:
        kept = probabilities * sets[:, None]  # [M, N, S]
        mass = kept.sum(-1)  # [M, N]
        alone = (kept @ values) / mass.clamp_min(1e-300).unsqueeze(-1)  # [M, N, D]
        error = (alone - output).norm(dim=-1) / output.norm(dim=-1).clamp_min(1e-300)
        return {"mass": mass.sum(-1), "output": (1 - error).clamp_min(0).mean(-1)}

    a, ax, b, bx = map(worth, (inner, inner | chosen, outer, outer | chosen))
    return {
        f"{z} {name}": float((h(ax[z]) - h(a[z]) >= h(bx[z]) - h(b[z]) - TOLERANCE).double().mean())
        for z in ("mass", "output")
        for name, h in CONCAVE.items()
    }
