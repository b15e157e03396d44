"""`h2o-chat eval perplexity --sampled TOKENS`: does a bounded cache get worse as a stream goes on and on?

No text of the model's own kind is long enough, so the model writes it: pieces of one window each, drawn at
temperature 1 with a cache that keeps everything, joined to streams. Each stream is then read through the
bounded cache from its first token to its last, one token at a time. The model's own chances for every token
are known from the drawing, so what each tenth of the stream costs is told twice: as perplexity, and as a
ratio to the perplexity with everything of the piece in sight. Pieces are independent and all tenths of a
kind: where the last tenth costs more than the second, the cache has aged. (The first is left out: it fills.)

Shapes: N streams of P pieces of W tokens, W the window; costs [N, P], mean NLL of a piece's drawn tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from h2o_chat.base.errors import UsageError
from h2o_chat.base.progress import Tick, part, unheard
from h2o_chat.cache.step import Step
from h2o_chat.lab.contest import Run
from h2o_chat.lab.contestant import full_cache
from h2o_chat.lab.figures import bootstrap, interval, resampled
from h2o_chat.lab.output import print_tables
from h2o_chat.lab.perplexity import feed_of, nll
from h2o_chat.lab.results import Results, key
from h2o_chat.models.load import Loaded
from h2o_chat.transformers_cache.probe import probe

AT_ONCE = 64
"""Pieces drawn side by side."""
PARTS = 10


@dataclass(frozen=True)
class Tenth:
    """One tenth of the streams."""

    first: int
    """Position of the first token in its stream."""
    end: int
    perplexity: float
    interval: tuple[float, float]
    """95%, bootstrap over pieces."""
    ratio: float
    """To the model's own chances when it drew the tokens, with everything of the piece in sight."""
    ratio_interval: tuple[float, float]


@dataclass(frozen=True)
class Stretch:
    """One policy at one budget."""

    contestant: str
    budget: int
    tenths: list[Tenth]
    flat: float
    """Perplexity of the last tenth to that of the second."""
    flat_interval: tuple[float, float]
    flat_ratio: float
    """The same of the ratios: how much of it is the cache's doing, and not the pieces'."""
    flat_ratio_interval: tuple[float, float]


@dataclass(frozen=True)
class SampledReport:
    """What was measured, and on what."""

    model: str
    dtype: str
    streams: int
    length_tokens: int
    """Of each stream."""
    window_tokens: int
    seed: int
    stretches: list[Stretch]


@torch.no_grad()
def draw(loaded: Loaded, pieces: int, window: int, seed: int, tick: Tick) -> tuple[Tensor, Tensor]:
    """Pieces of `window` tokens, the first of each what texts begin with, and the mean NLL of the others.

    Returns:
        Tokens [pieces, window] and their cost when they were drawn [pieces].

    Raises:
        UsageError: the model has no token that texts begin with.
    """
    start = loaded.tokenizer.bos_token_id
    start = loaded.tokenizer.eos_token_id if start is None else start
    if start is None:
        raise UsageError(f"{loaded.name} has no token to begin a text with.", "Give --texts instead.")
    generator, positions = torch.Generator().manual_seed(seed), probe(loaded.model)
    tokens, costs = [], []
    for before in range(0, pieces, AT_ONCE):
        rows = min(AT_ONCE, pieces - before)
        cache, said = full_cache(positions), [torch.full((rows, 1), start)]
        cost = torch.zeros(rows)
        while len(said) < window:
            step = said[-1].to(loaded.device)
            cache.prepare(Step(1))
            where = cache.position_ids().to(step.device).expand_as(step)
            logits = loaded.model(step, position_ids=where, past_key_values=cache).logits
            log_chances = logits[:, -1].float().log_softmax(-1).cpu()
            said.append(torch.multinomial(log_chances.exp(), 1, generator=generator))
            cost -= log_chances.gather(-1, said[-1]).squeeze(-1)
            tick((before + rows * len(said) / window) / pieces)
        tokens.append(torch.cat(said, 1))
        costs.append(cost / (window - 1))
    return torch.cat(tokens), torch.cat(costs)


def cost_of(loaded: Loaded, streams: Tensor, run: Run, window: int, tick: Tick) -> list[list[float]]:
    """Reads streams [N, P * W] through a fresh cache, token by token. [N, P]

    What a piece begins with was not drawn, so it is not counted.
    """
    parts = [torch.zeros(len(streams), 1)]
    for costs in nll(feed_of(loaded), streams.to(loaded.device), run.cache(probe(loaded.model))):
        parts.append(costs.cpu())
        tick(len(parts) / streams.shape[1])
    by_piece: list[list[float]] = (
        torch.cat(parts, 1).view(len(streams), -1, window)[..., 1:].mean(-1).tolist()
    )
    return by_piece


def stretch(run: Run, costs: Tensor, own: Tensor, window: int, seed: int) -> Stretch:
    """By tenths, from costs [N, P] and what the model's own chances cost [N, P]; P is 10 or more."""
    pieces = costs.shape[1]
    lost, edges = costs - own, [round(part * pieces / PARTS) for part in range(PARTS + 1)]
    tenths = [
        Tenth(
            first=first * window,
            end=end * window,
            perplexity=float(costs[:, first:end].mean().exp()),
            interval=bootstrap(costs[:, first:end].flatten(), seed),
            ratio=float(lost[:, first:end].mean().exp()),
            ratio_interval=bootstrap(lost[:, first:end].flatten(), seed),
        )
        for first, end in pairwise(edges)
    ]
    second, last = slice(edges[1], edges[2]), slice(edges[-2], edges[-1])
    flat = _between(costs[:, last].flatten(), costs[:, second].flatten(), seed)
    flat_ratio = _between(lost[:, last].flatten(), lost[:, second].flatten(), seed)
    return Stretch(run.name, run.budget or 0, tenths, flat[0], flat[1:], flat_ratio[0], flat_ratio[1:])


def _between(one: Tensor, other: Tensor, seed: int) -> tuple[float, float, float]:
    """exp(mean - mean) of pieces [A] and [B], and its interval: both are resampled (Efron 1979)."""
    generator = torch.Generator().manual_seed(seed)
    low, high = interval((resampled(one, generator) - resampled(other, generator)).exp())
    return float((one.mean() - other.mean()).exp()), low, high


def measure(
    loaded: Loaded,
    tokens: int,
    streams: int,
    runs: Sequence[Run],
    seed: int,
    tick: Tick = unheard,
    results: Results | None = None,
) -> SampledReport:
    """All runs on the same `streams` streams, of `tokens` tokens together.

    Args:
        results: what is there already is not drawn or measured again.

    Raises:
        UsageError: a tenth of a stream would be less than a piece.
    """
    window = probe(loaded.model).window
    pieces = tokens // (streams * window)
    if pieces < PARTS:
        raise UsageError(
            f"{tokens:,} tokens in {streams} streams: a stream holds at least {PARTS} windows of"
            f" {window:,} tokens.",
            f"Give --sampled {PARTS * window * streams} or more, or fewer --streams.",
        )
    total, results = 1 + len(runs), results or Results(None)

    def drawn() -> list[Any]:
        return [one.tolist() for one in draw(loaded, streams * pieces, window, seed, part(tick, 0, total))]

    where = key(loaded, "sampled", [streams * pieces, window, seed])
    ids, own = map(torch.tensor, results.once(where, drawn))
    ids, own = ids.view(streams, pieces * window), own.view(streams, pieces)
    data, found = ids.tolist(), []
    for number, run in enumerate(runs, 1):
        told = part(tick, number, total)
        where = key(loaded, "sampled costs", data, contestant=run.name, budget=run.budget)
        costs = results.once(where, partial(cost_of, loaded, ids, run, window, told))
        found.append(stretch(run, torch.tensor(costs), own, window, seed))
    return SampledReport(loaded.name, loaded.dtype, streams, pieces * window, window, seed, found)


def show_table(report: SampledReport) -> None:
    """Tenths down, then how flat they are; policies and budgets across."""
    from rich.table import Table

    table = Table(
        title=f"{report.model}: perplexity of {report.streams} streams of {report.length_tokens:,} tokens"
        " that it drew itself",
        caption="[95% bootstrap interval over pieces]; after the slash: to the chances when it was drawn.",
    )
    table.add_column("positions")
    for one in report.stretches:
        table.add_column(f"{one.contestant}, {one.budget:,} slots", justify="right")
    for number, tenth in enumerate(report.stretches[0].tenths):
        cells = [one.tenths[number] for one in report.stretches]
        table.add_row(
            f"{tenth.first:,}-{tenth.end:,}",
            *(
                _cell(cell.perplexity, cell.interval, 3) + " / " + _cell(cell.ratio, cell.ratio_interval, 4)
                for cell in cells
            ),
        )
    table.add_section()
    table.add_row(
        "last : second",
        *(
            _cell(one.flat, one.flat_interval, 4) + " / " + _cell(one.flat_ratio, one.flat_ratio_interval, 4)
            for one in report.stretches
        ),
    )
    print_tables(table)


def _cell(value: float, interval: tuple[float, float], digits: int) -> str:
    low, high = interval
    return f"{value:.{digits}f} [{low:.3f}, {high:.3f}]"
