"""`h2o-chat lab eval observe`: the H2O paper's figures of attention (arXiv 2306.14048), on your model.

Three of them: attention is sparse (section 3.1), accumulated scores follow a power law (3.2), and scores up
to the middle of a text choose nearly what all queries choose (3.3). `removal.py` takes heavy hitters away.

Shapes: N documents of L tokens, all within the model's window; R rows, Q query heads, H KV heads, S slots.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rich.table import Table
from torch import Tensor

from h2o_chat.base.errors import UsageError
from h2o_chat.base.progress import Tick, part, unheard
from h2o_chat.lab.eval.attention_blocks import blocks
from h2o_chat.lab.eval.token_removal import Removed, removal
from h2o_chat.lab.shared.intervals import mean_interval
from h2o_chat.lab.shared.report_output import print_tables, with_interval
from h2o_chat.models.load import Loaded
from h2o_chat.transformers_cache.probe import trained_window

PARTS = ("attention", "removal")
KEPT_SHARE = 0.2
"""The paper's usual budget: the share of the tokens so far that local and global scores choose."""
SPARSE_BELOW = 0.01
"""An entry counts as zero below this share of the largest of its row (section 3.1)."""


@dataclass(frozen=True)
class PowerLaw:
    """score of rank r = constant * r ** -exponent, a straight line on two logarithmic axes."""

    exponent: float
    r2: float
    """Share of the variance of the logarithm that the line explains."""


@dataclass(frozen=True)
class Layer:
    """Figures of one layer: means over KV heads and documents."""

    layer: int
    sparsity: float
    """Share of visible entries below 1% of the largest of their row."""
    sparsity_interval: tuple[float, float]
    """95%, bootstrap over documents."""
    exponent: float
    """Exponent of the power law of accumulated scores by rank."""
    r2: float
    local_overlap: float
    """Share of the heaviest fifth of the tokens by all queries that scores up to the middle choose too.
    Uniform attention would give 1: old tokens had more queries, now and in the end."""
    future_overlap: float
    """Share that the queries after the middle alone choose too: what has to be guessed. By chance a fifth."""


@dataclass(frozen=True)
class ObserveReport:
    """All figures, and what they were measured on; a part that was not asked for is empty."""

    model: str
    documents: int
    length_tokens: int
    seed: int
    layers: list[Layer]
    uniform: PowerLaw
    """The power law by rank of a model that attends to all tokens alike."""
    scores: list[list[float]]
    """Per layer the mean accumulated score of each rank, divided by the highest: [layers][L]."""
    removal: list[Removed]


def sparse_entries(probabilities: Tensor, first: int) -> tuple[Tensor, int]:
    """Counts visible entries below 1% of the largest of their row: [R], and out of how many.

    Args:
        probabilities: [R, Q, N, S], of N queries at positions `first` onwards, which see none after them.
    """
    heads, queries, positions = probabilities.shape[1:]
    at = torch.arange(first, first + queries, device=probabilities.device)
    visible = torch.arange(positions, device=probabilities.device) <= at[:, None]  # [N, S]
    small = probabilities < SPARSE_BELOW * probabilities.amax(-1, keepdim=True)
    return (small & visible).sum((1, 2, 3)), heads * int(visible.sum())


def power_law(scores: Tensor) -> PowerLaw:
    """Least squares of log score on log rank, over all scores [S] above 0, the highest first."""
    ordered = scores.double().flatten().sort(descending=True).values.cpu()
    y = ordered[ordered > 0].log()
    x = torch.arange(1, len(y) + 1, dtype=torch.float64).log()
    x, y = x - x.mean(), y - y.mean()
    if float(y.square().sum()) == 0:
        return PowerLaw(0.0, 1.0)
    slope = float((x * y).sum() / x.square().sum())
    return PowerLaw(-slope, 1 - float((y - slope * x).square().sum() / y.square().sum()))


def uniform_law(length: int) -> PowerLaw:
    """The power law of a document in which each query attends to itself and all tokens before it alike.

    Token j then receives 1/(j + 1) + ... + 1/length: the older, the more, with no heavy hitter at all.
    """
    return power_law((1 / torch.arange(1, length + 1, dtype=torch.float64)).flip(0).cumsum(0))


def top_overlap(one: Tensor, other: Tensor, keep: int) -> Tensor:
    """Share of the `keep` highest of one score that are among those of the other. [..., S] -> [...]"""
    chosen = torch.zeros_like(one, dtype=torch.bool).scatter_(-1, one.topk(keep).indices, True)
    return chosen.gather(-1, other.topk(keep).indices).double().mean(-1)


class _Layer:
    """Figures of one layer, gathered document by document."""

    def __init__(self) -> None:
        self.small: list[float] = []
        self.scores: list[Tensor] = []
        """[H, L] of each document, over all queries."""
        self.local: list[float] = []
        self.future: list[float] = []

    def summary(self, layer: int, seed: int) -> Layer:
        """Means over the documents."""
        fits = [[power_law(head) for head in scores] for scores in self.scores]  # [N][H]
        return Layer(
            layer=layer,
            sparsity=_mean(self.small),
            sparsity_interval=mean_interval(self.small, seed),
            exponent=_mean([fit.exponent for document in fits for fit in document]),
            r2=_mean([fit.r2 for document in fits for fit in document]),
            local_overlap=_mean(self.local),
            future_overlap=_mean(self.future),
        )

    def by_rank(self) -> list[float]:
        """The mean score of each rank, divided by the highest."""
        ordered = torch.stack(self.scores).sort(-1, descending=True).values  # [N, H, L]
        return [float(score) for score in (ordered / ordered[..., :1]).mean((0, 1))]


def attention(loaded: Loaded, ids: Tensor, seed: int, tick: Tick) -> tuple[list[Layer], list[list[float]]]:
    """Reads documents [N, L] one at a time; the figures of each layer, and its scores by rank."""
    gathered: list[_Layer] = []
    for number, row in enumerate(ids):
        _document(loaded, row, gathered)
        tick((number + 1) / len(ids))
    return [one.summary(at, seed) for at, one in enumerate(gathered)], [one.by_rank() for one in gathered]


def _document(loaded: Loaded, row: Tensor, gathered: list[_Layer]) -> None:
    """Adds the figures of one document [L]."""
    length, middle = len(row), len(row) // 2
    sums: list[Tensor] = []  # per layer [H, L], so far
    halfway: list[Tensor] = []
    small: list[tuple[int, int]] = []
    for block in blocks(loaded.model, row[None].to(loaded.device)):
        if not sums:
            sums = [torch.zeros(heads, length, dtype=torch.float64) for heads in block.kv_heads]
            small = [(0, 0)] * len(sums)
            gathered += [_Layer() for _ in sums[len(gathered) :]]
        end = block.first + block.probabilities[0].shape[2]
        for layer, found in enumerate(block.probabilities):
            fewer, seen = sparse_entries(found, block.first)
            small[layer] = (small[layer][0] + int(fewer), small[layer][1] + seen)
            received = block.by_kv_head(layer)[0].double().cpu()  # [H, N, S]
            if block.first < middle <= end:
                halfway.append(sums[layer].clone())
                halfway[layer][:, :end] += received[:, : middle - block.first].sum(1)
            sums[layer][:, :end] += received.sum(1)
    keep = max(1, round(KEPT_SHARE * middle))
    for layer, one in enumerate(gathered):
        so_far, ever = halfway[layer][:, :middle], sums[layer][:, :middle]
        one.small.append(small[layer][0] / small[layer][1])
        one.scores.append(sums[layer])
        one.local.append(float(top_overlap(so_far, ever, keep).mean()))
        one.future.append(float(top_overlap(so_far, ever - so_far, keep).mean()))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def measure(
    loaded: Loaded, ids: Tensor, parts: Sequence[str], seed: int, tick: Tick = unheard
) -> ObserveReport:
    """Measures the parts that are asked for on documents [N, L].

    Raises:
        UsageError: the documents are longer than the model's window.
    """
    length, window = ids.shape[1], trained_window(loaded.model.config)
    if length > window:
        raise UsageError(
            f"Documents of {length:,} tokens do not fit the model's window of {window:,}.",
            f"Give a --length of {window} or less.",
        )
    layers, scores, removed = list[Layer](), list[list[float]](), list[Removed]()
    for number, one in enumerate(parts):
        share = part(tick, number, len(parts))
        if one == "attention":
            layers, scores = attention(loaded, ids, seed, share)
        else:
            removed = removal(loaded, ids, seed, share)
    return ObserveReport(loaded.name, len(ids), length, seed, layers, uniform_law(length), scores, removed)


def show_tables(report: ObserveReport) -> None:
    """One table for each part that was asked for."""
    if report.layers:
        print_tables(_attention_table(report))
    if report.removal:
        print_tables(_removal_table(report))


def _attention_table(report: ObserveReport) -> Table:
    table = Table(
        title=f"{report.model}: {report.documents} documents of {report.length_tokens:,} tokens: attention",
        caption="sparsity: entries below 1% of their row's largest. exponent: of score by rank, log-log least"
        f" squares; uniform attention: {report.uniform.exponent:.2f}, R2 {report.uniform.r2:.2f}. overlap: of"
        f" the {KEPT_SHARE:.0%} heaviest tokens half-way, with those of all queries / of the later ones, by"
        f" chance {KEPT_SHARE:.2f}.",
    )
    for column in ("layer", "sparsity [95%]", "exponent", "R2", "overlap all / later"):
        table.add_column(column, justify="right" if table.columns else "left")
    for one in report.layers:
        table.add_row(
            str(one.layer),
            with_interval(one.sparsity, one.sparsity_interval, 3),
            f"{one.exponent:.2f}",
            f"{one.r2:.2f}",
            f"{one.local_overlap:.2f} / {one.future_overlap:.2f}",
        )
    return table


def _removal_table(report: ObserveReport) -> Table:
    shares = sorted({one.share for one in report.removal})
    table = Table(
        *("which", *(f"{share:.0%}" for share in shares)),
        title="Tokens of the first half removed",
        caption="Perplexity of the second half to that with all tokens; [95% bootstrap over documents].",
    )
    for what in dict.fromkeys(one.what for one in report.removal):
        found = {one.share: one for one in report.removal if one.what == what}
        table.add_row(what, *(with_interval(found[s].ratio, found[s].interval, 3) for s in shares))
    return table
