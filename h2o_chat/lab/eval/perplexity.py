"""`h2o-chat lab eval perplexity`: what forgetting costs, in nats per token of real text.

Texts are joined and cut into documents of equal length, which are fed one token at a time, one document a
row, through a cache that forgets and through one that does not. `ratio = exp(mean NLL - mean NLL with
everything)` over the positions past the budget (and past the part that is read as a prompt, if there is one):
1.000 is nothing lost.

Shapes: N documents of L tokens; NLL [N, L - 1], entry t for the token after position t.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from h2o_chat.base.errors import UsageError
from h2o_chat.base.progress import Tick, part, unheard
from h2o_chat.cache.forward_call import Step
from h2o_chat.engine.runner import trained_positions
from h2o_chat.lab.shared.intervals import bootstrap
from h2o_chat.lab.shared.policy_variant import PolicyVariant
from h2o_chat.lab.shared.report_output import print_table
from h2o_chat.models.fits import equal_slots
from h2o_chat.models.load import Loaded
from h2o_chat.native.native_model import LoadedNative
from h2o_chat.native.step import NativeStep
from h2o_chat.transformers_cache.cache import H2OCache

ROWS = 16
"""Documents at once."""

Ratio = tuple[float, float, float]
"""A ratio of perplexities, and the ends of its 95% interval."""


@dataclass(frozen=True)
class Score:
    """One variant at one budget."""

    policy: str
    budget: int
    """Slots that were asked for."""
    slots: int
    """Slots that were given: more, at equal bytes, where keys and values are smaller."""
    kv_bytes: int
    """Bytes of keys and values of one document: `H2OCache.bytes_held`."""
    sinks: int
    recent: int
    first: int
    """First position that was counted."""
    perplexity: float
    ratio: float
    """Perplexity divided by the full cache's."""
    interval: tuple[float, float]
    """95% interval of the ratio; bootstrap over documents."""
    to_first: Ratio | None = None
    """Perplexity to that of the first variant, document by document, and its interval, where wanted."""


@dataclass(frozen=True)
class PerplexityReport:
    model: str
    dtype: str
    documents: int
    length_tokens: int
    window_tokens: int
    prompt_tokens: int
    """Tokens read as a prompt at the beginning of each document; the rest follows one by one."""
    seed: int
    scores: list[Score]


Feed = Callable[[H2OCache, Tensor], Tensor]
"""The step that a cache has prepared: tokens [N, C] in, logits [N, C, V] out."""


def feed_of(loaded: Loaded) -> Feed:
    """The native step where the model is open for it; else transformers."""
    if isinstance(loaded, LoadedNative):
        return partial(NativeStep(loaded.packed, torch.get_num_threads()).feed, all_columns=True)
    return partial(through_transformers, loaded.model)


def through_transformers(model: Any, cache: H2OCache, ids: Tensor) -> Tensor:
    """A `Feed`, of a model of transformers."""
    where = cache.position_ids().to(ids.device).expand_as(ids)
    logits: Tensor = model(ids, position_ids=where, past_key_values=cache).logits
    return logits


@torch.no_grad()
def nll(feed: Feed, ids: Tensor, cache: H2OCache, columns: int = 1, prompt: int = 0) -> Iterator[Tensor]:
    """Feeds documents [N, L] `columns` at a time; yields the NLL [N, columns] of the tokens that followed.

    The first `prompt` tokens are fed as a prompt is, as many in one call as the cache reads at once.
    """
    widths = [*_parts(prompt, cache.pass_tokens), *_parts(ids.shape[1] - 1 - prompt, columns)]
    steps = torch.split(ids[:, :-1], widths, 1)
    targets = torch.split(ids[:, 1:], widths, 1)
    for step, target in zip(steps, targets, strict=True):
        cache.prepare(Step(step.shape[1]))
        log_probabilities = feed(cache, step).float().log_softmax(-1)
        yield -log_probabilities.gather(-1, target.unsqueeze(-1)).squeeze(-1)


def _parts(tokens: int, size: int) -> list[int]:
    return [min(size, tokens - start) for start in range(0, tokens, size)]


def through(
    loaded: Loaded, ids: Tensor, columns: int, prompt: int, plan: dict[str, Any], tick: Tick
) -> tuple[Tensor, int]:
    """NLL of documents [N, L] through fresh caches, [N, L - 1]; bytes of keys and values of one of them."""
    positions, length, rows, held = trained_positions(loaded), ids.shape[1], list[Tensor](), 0
    feed = feed_of(loaded)
    for batch in torch.split(ids.to(loaded.device), ROWS):
        cache = H2OCache(positions=positions, **plan)
        parts = []
        for found in nll(feed, batch, cache, columns, prompt):
            parts.append(found)
            read = sum(one.shape[1] for one in parts) / (length - 1)
            tick((len(rows) * ROWS + len(batch) * read) / len(ids))
        rows.append(torch.cat(parts, 1))
        held = cache.bytes_held // len(batch)
    return torch.cat(rows).cpu(), held


def measure(
    loaded: Loaded,
    ids: Tensor,
    variants: Sequence[PolicyVariant],
    budgets: Sequence[int],
    seed: int,
    tick: Tick = unheard,
    prompt: int = 0,
    equal_bytes: bool = False,
    paired: bool = False,
) -> PerplexityReport:
    """All variants at all budgets on documents [N, L], whose first `prompt` tokens are read as a prompt.

    Args:
        equal_bytes: budgets are slots of the model's own precision; others get as many as fit into as much.
        paired: each is compared with the first of them, too, at the same budget.

    Raises:
        BudgetError: a variant's parts do not fit a budget.
        UsageError: a budget that a document does not fill, or a document that is longer than the window.
    """
    count, length = ids.shape
    if max(budgets) >= length - 1:
        raise UsageError(
            f"A budget of {max(budgets):,} slots forgets nothing of documents of {length:,} tokens.",
            "Give smaller budgets or a larger --length.",
        )
    if prompt >= length - 1:
        raise UsageError(
            f"A prompt of {prompt:,} tokens leaves nothing to measure of documents of {length:,}.",
            "Give a smaller --prompt or a larger --length.",
        )
    window = trained_positions(loaded).window
    if length > window:
        raise UsageError(
            f"Documents of {length:,} tokens do not fit the full cache of {loaded.name}: its window has"
            f" {window:,}.",
            "Give a smaller --length.",
        )
    shares = {}
    for variant, budget in product(variants, budgets):
        own = budget
        if equal_bytes:
            own = equal_slots(loaded.sizes, loaded.precision.itemsize, variant.kv, budget)
        shares[variant, budget] = variant.shares(own)
    ticks = (part(tick, number, len(shares) + 1) for number in range(len(shares) + 1))
    full, _ = through(loaded, ids, 64, 0, {"policy": "full"}, next(ticks))
    scores = []
    of_first: dict[int, Tensor] = {}
    for (variant, budget), parts in shares.items():
        plan = asdict(variant) | asdict(parts)
        found, held = through(loaded, ids, 1, prompt, plan, next(ticks))
        first = max(budget, prompt)
        baseline = of_first.setdefault(budget, found)
        ratio, low, high = _ratio(found, full, first, seed)
        scores.append(
            Score(
                policy=str(variant),
                budget=budget,
                slots=parts.budget,
                kv_bytes=held,
                sinks=parts.sinks,
                recent=parts.recent,
                first=first,
                perplexity=float(found[:, first:].mean().exp()),
                ratio=ratio,
                interval=(low, high),
                to_first=_ratio(found, baseline, first, seed) if paired and baseline is not found else None,
            )
        )
    return PerplexityReport(loaded.name, loaded.dtype, count, length, window, prompt, seed, scores)


def _ratio(found: Tensor, other: Tensor, first: int, seed: int) -> Ratio:
    """Perplexity of NLL [N, L - 1] from a position on to that of another, and its interval."""
    more = (found - other)[:, first:].mean(1)  # [N]
    return float(more.mean().exp()), *bootstrap(more, seed)


def show_table(report: PerplexityReport) -> None:
    """Policies down, budgets across."""
    budgets = sorted({score.budget for score in report.scores})
    lines: dict[str, dict[int, str]] = {}

    def put(who: str, budget: int, value: float, low: float, high: float) -> None:
        lines.setdefault(who, {})[budget] = f"{value:.4f} [{low:.3f}, {high:.3f}]"

    for score in report.scores:
        more = "" if score.slots == score.budget else " in as many bytes"
        put(score.policy + more, score.budget, score.ratio, *score.interval)
        if score.to_first is not None:
            put(f"{score.policy} : {report.scores[0].policy}", score.budget, *score.to_first)
    behind = f" and a prompt of {report.prompt_tokens:,}" if report.prompt_tokens else ""
    print_table(
        ("policy", *(f"{budget} slots" for budget in budgets)),
        [(who, *(cells.get(budget, "") for budget in budgets)) for who, cells in lines.items()],
        f"{report.model}: perplexity to full past the budget{behind}, {report.documents} documents of"
        f" {report.length_tokens:,} tokens",
        "In brackets: 95% bootstrap interval over documents.",
    )
