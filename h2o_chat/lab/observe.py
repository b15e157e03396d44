"""`h2o-chat eval observe`: what the H2O paper says of attention (arXiv 2306.14048), on your model and text.

Attention is taken block by block from stock transformers (`blocks.py`), the figures are pure functions
(`claims.py`); what needs the bounded cache itself is in `removal.py`, `topic.py` and `diversity.py`.

Shapes: N documents of L tokens, all within the model's window; H KV heads.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from h2o_chat.base.errors import UsageError
from h2o_chat.base.progress import Tick, part, unheard
from h2o_chat.lab.blocks import blocks
from h2o_chat.lab.claims import (
    PowerLaw,
    company,
    diminishing,
    power_law,
    rank_correlation,
    sparse_entries,
    top_overlap,
    uniform_law,
)
from h2o_chat.lab.contest import Run
from h2o_chat.lab.diversity import Diversity, diversity
from h2o_chat.lab.figures import mean_interval
from h2o_chat.lab.removal import Removed, removal
from h2o_chat.lab.topic import Switch, joined, switches
from h2o_chat.models.load import Loaded
from h2o_chat.transformers_cache.probe import trained_window

PARTS = ("attention", "removal", "topic", "diversity")
KEPT_SHARE = 0.2
"""Of the tokens so far: the sets that local and global statistics choose. The paper's usual budget."""
SUBMODULAR_DOCUMENTS = 4
SUBMODULAR_SETS = 100
"""For each document, layer and KV head."""


@dataclass(frozen=True)
class Layer:
    """What was seen in one layer; means over KV heads and documents, and who varies among them."""

    layer: int
    sparsity: float
    """Share of visible entries below 1% of the largest of their row."""
    sparsity_interval: tuple[float, float]
    """95%, bootstrap over documents."""
    exponent: float
    """Of the power law of accumulated scores by rank, a mean over documents and KV heads ..."""
    exponent_range: tuple[float, float]
    """... and the least and the most that a KV head has, each a mean over documents."""
    r2: float
    exponential_r2: float
    word_law: PowerLaw
    """Of the attention that all occurrences of a token of the vocabulary received, by rank."""
    words: float
    """Rank correlation over tokens of the vocabulary: attention that all their occurrences received, with
    the number of different tokens that they stand beside."""
    words_each: float
    """The same for the attention of one occurrence, per query that saw it."""
    local_overlap: float
    """Of the fifth of the tokens that scores up to the middle choose, the share that all queries choose.
    Uniform attention would give 1: old tokens had more queries, now and in the end."""
    future_overlap: float
    """The share that the queries after the middle alone choose: what has to be guessed. By chance a fifth."""
    diminishing: dict[str, float]
    """How often greedy choices have diminishing returns, by F (`claims.diminishing`)."""


@dataclass(frozen=True)
class ObserveReport:
    """Everything, and what it was measured on; a part that was not asked for is empty."""

    model: str
    documents: int
    length_tokens: int
    seed: int
    kept_share: float
    layers: list[Layer]
    uniform: PowerLaw
    """What a model that attends to all tokens alike would have as its power law by rank."""
    scores: list[list[float]]
    """Per layer the mean accumulated score of each rank, divided by the highest: [layers][L]."""
    removal: list[Removed]
    topic: list[Switch]
    diversity: list[Diversity]


def attention(loaded: Loaded, ids: Tensor, seed: int, tick: Tick) -> tuple[list[Layer], list[list[float]]]:
    """The part that needs attention itself, on documents [N, L], one at a time."""
    gathered: list[_Layer] = []
    generator = torch.Generator().manual_seed(seed)
    near = company(ids.tolist())
    for number, row in enumerate(ids):
        _document(loaded, row, gathered, generator if number < SUBMODULAR_DOCUMENTS else None)
        tick((number + 1) / len(ids))
    layers = [one.told(index, ids, near, seed) for index, one in enumerate(gathered)]
    return layers, [one.by_rank() for one in gathered]


class _Layer:
    """What is gathered of one layer, document by document."""

    def __init__(self) -> None:
        self.small: list[float] = []
        self.scores: list[Tensor] = []
        """[H, L] of each document, over all queries."""
        self.local: list[Tensor] = []
        self.future: list[Tensor] = []
        self.returns: dict[str, list[float]] = defaultdict(list)

    def told(self, layer: int, ids: Tensor, near: dict[int, int], seed: int) -> Layer:
        """All of it as figures."""
        fits = [[power_law(head) for head in scores] for scores in self.scores]  # [N][H]
        heads = [sum(fit.exponent for fit in head) / len(head) for head in zip(*fits, strict=True)]
        flat = [fit for document in fits for fit in document]
        total, each = _by_token(ids, self.scores)
        tokens = sorted(total)
        companions = [float(near[token]) for token in tokens]
        return Layer(
            layer=layer,
            sparsity=_mean(self.small),
            sparsity_interval=mean_interval(self.small, seed),
            exponent=_mean(heads),
            exponent_range=(min(heads), max(heads)),
            r2=_mean([fit.r2 for fit in flat]),
            exponential_r2=_mean([fit.exponential_r2 for fit in flat]),
            word_law=power_law(torch.tensor([total[token] for token in tokens])),
            words=rank_correlation([total[token] for token in tokens], companions),
            words_each=rank_correlation([each[token] for token in tokens], companions),
            local_overlap=float(torch.stack(self.local).mean()),
            future_overlap=float(torch.stack(self.future).mean()),
            diminishing={name: _mean(shares) for name, shares in self.returns.items()},
        )

    def by_rank(self) -> list[float]:
        """The mean score of each rank, to the highest."""
        ordered = torch.stack(self.scores).sort(-1, descending=True).values  # [N, H, L]
        mean = (ordered / ordered[..., :1]).mean((0, 1))
        return [float(score) for score in mean]


def _document(loaded: Loaded, row: Tensor, gathered: list[_Layer], generator: torch.Generator | None) -> None:
    """Reads one document [L]; sets for diminishing returns are drawn if there is a generator."""
    length = len(row)
    middle = length // 2
    sums: list[Tensor] = []  # per layer [H, L], so far
    halfway: list[Tensor] = []
    small: list[tuple[int, int]] = []
    for block in blocks(loaded.model, row[None].to(loaded.device)):
        if not sums:
            heads = [values.shape[1] for values in block.values]
            sums = [torch.zeros(count, length, dtype=torch.float64) for count in heads]
            small = [(0, 0)] * len(heads)
            gathered += [_Layer() for _ in heads[len(gathered) :]]
        end = block.first + block.probabilities[0].shape[2]
        for layer, found in enumerate(block.probabilities):
            fewer, seen = sparse_entries(found, block.first)
            small[layer] = (small[layer][0] + int(fewer), small[layer][1] + seen)
            received = block.by_kv_head(layer)[0].double().cpu()  # [H, N, S]
            if block.first < middle <= end:
                halfway.append(sums[layer].clone())
                halfway[layer][:, :end] += received[:, : middle - block.first].sum(1)
            sums[layer][:, :end] += received.sum(1)
            if end == length and generator is not None:
                for head, values in zip(received, block.values[layer][0], strict=True):
                    shares = diminishing(head, values, SUBMODULAR_SETS, generator)
                    for name, share in shares.items():
                        gathered[layer].returns[name].append(share)
    keep = max(1, round(KEPT_SHARE * middle))
    for layer, one in enumerate(gathered):
        so_far, ever = halfway[layer][:, :middle], sums[layer][:, :middle]
        one.small.append(small[layer][0] / small[layer][1])
        one.scores.append(sums[layer])
        one.local.append(top_overlap(so_far, ever, keep).mean())
        one.future.append(top_overlap(so_far, ever - so_far, keep).mean())


def _by_token(ids: Tensor, scores: Sequence[Tensor]) -> tuple[dict[int, float], dict[int, float]]:
    """Attention of every token of the vocabulary: of all its occurrences, and of one, per query."""
    total: dict[int, float] = defaultdict(float)
    rates: dict[int, list[float]] = defaultdict(list)
    length = ids.shape[1]
    for row, found in zip(ids.tolist(), scores, strict=True):
        for at, (token, score) in enumerate(zip(row, found.sum(0).tolist(), strict=True)):
            total[token] += score
            rates[token].append(score / (length - at))  # itself and every later token asked
    return dict(total), {token: _mean(each) for token, each in rates.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def measure(
    loaded: Loaded,
    ids: Tensor,
    others: Tensor,
    runs: Sequence[Run],
    parts: Sequence[str],
    seed: int,
    tick: Tick = unheard,
) -> ObserveReport:
    """All parts on documents [N, L]; `others` [M, L] are what the topic changes to.

    Raises:
        UsageError: documents longer than the model's window, or budgets as large as what is read.
    """
    length, window = ids.shape[1], trained_window(loaded.model.config)
    if length > window:
        raise UsageError(
            f"Documents of {length:,} tokens do not fit the model's window of {window:,}.",
            f"Give a --length of {window} or less.",
        )
    if set(parts) & {"topic", "diversity"} and any((run.budget or 0) >= length // 2 for run in runs):
        raise UsageError(
            f"Budgets as large as half of {length:,} tokens forget nothing here.", "Give smaller ones."
        )
    layers: list[Layer] = []
    scores: list[list[float]] = []
    removed: list[Removed] = []
    topics: list[Switch] = []
    texts: list[Diversity] = []
    for number, one in enumerate(parts):
        told = part(tick, number, len(parts))
        if one == "attention":
            layers, scores = attention(loaded, ids, seed, told)
        elif one == "removal":
            removed = removal(loaded, ids, seed, told)
        elif one == "topic":
            topics = switches(loaded, joined(ids, others), runs, seed, told)
        else:
            texts = diversity(loaded, ids, runs, seed, told)
    return ObserveReport(
        model=loaded.name,
        documents=len(ids),
        length_tokens=length,
        seed=seed,
        kept_share=KEPT_SHARE,
        layers=layers,
        uniform=uniform_law(length),
        scores=scores,
        removal=removed,
        topic=topics,
        diversity=texts,
    )
