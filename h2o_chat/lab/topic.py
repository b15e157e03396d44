"""A sudden change of topic: how long do slots hold the old one, and what does that cost?

Half a document is followed by the first half of another. After the switch, for each policy: the share of kept
tokens that are from before, and the perplexity of the new text, to a cache that keeps everything and to the
same policy that was never told the old text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from h2o_chat.base.progress import Tick, unheard
from h2o_chat.lab.contest import Run
from h2o_chat.lab.figures import bootstrap
from h2o_chat.lab.perplexity import ROWS, feed_of, nll
from h2o_chat.models.load import Loaded
from h2o_chat.transformers_cache.probe import probe

EDGES = (0, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
"""Tokens after the switch."""
GONE = 0.1
"""Share of the slots that counts as none: sinks stay."""


@dataclass(frozen=True)
class Stretch:
    """What was measured between `first` and `end` tokens after the switch."""

    first: int
    end: int
    old: float
    """Share of the kept tokens that are from before the switch, at the end of the stretch."""
    to_full: float
    """Perplexity to the cache that keeps everything, old text included."""
    to_full_interval: tuple[float, float]
    to_fresh: float
    """Perplexity to the same policy and budget that began with the new text."""
    to_fresh_interval: tuple[float, float]
    """Both 95%, bootstrap over documents."""


@dataclass(frozen=True)
class Switch:
    """One policy."""

    contestant: str
    budget: int | None
    """None: the full cache."""
    gone_after: int | None
    """Tokens after which the old topic holds a tenth of the slots in use, or less; None: never."""
    recovered_after: int | None
    """Tokens after which the new text costs no more than to a fresh cache: the end of the last stretch whose
    interval lies above 1. None: the last one of all does."""
    stretches: list[Stretch]


def joined(ids: Tensor, others: Tensor) -> Tensor:
    """Halves of documents [N, L], each followed by the first half of one of `others` [M, L]. [N, L]"""
    half = ids.shape[1] // 2
    partner = others.roll(-(len(others) // 2), 0)  # no document is its own, unless it is alone
    rows = min(len(ids), len(partner))
    return torch.cat((ids[:rows, :half], partner[:rows, :half]), 1)


def old_share(cache: Any, switch: int) -> float:
    """Of the tokens kept, over all layers, rows and heads, those from before position `switch`."""
    old = held = 0
    for arena in cache.arenas:
        positions = arena.slots.positions
        old += int(((positions >= 0) & (positions < switch)).sum())
        held += int((positions >= 0).sum())
    return old / held


def switches(
    loaded: Loaded, ids: Tensor, runs: Sequence[Run], seed: int, tick: Tick = unheard
) -> list[Switch]:
    """The full cache, which is the first run, then the others, on joined documents [N, L]."""
    half, positions = ids.shape[1] // 2, probe(loaded.model)
    edges = [edge for edge in EDGES if edge < half - 1] + [half - 1]
    batches = torch.split(ids.to(loaded.device), ROWS)
    done, total = 0, len(runs) * len(batches) * 3 * half

    def read(run: Run, rows: Tensor, switch: int | None) -> tuple[Tensor, list[float]]:
        """NLL [R, L - 1], and the share of old tokens after each token of the new text."""
        nonlocal done
        cache, found, shares = run.cache(positions), [], []
        for at, part in enumerate(nll(feed_of(loaded), rows, cache)):
            found.append(part)
            if switch is not None and at >= switch:
                shares.append(old_share(cache, switch))
            done += 1
            tick(done / total)
        return torch.cat(found, 1).cpu(), shares

    results = []
    full = torch.empty(0)
    for run in runs:
        after, alone, held = [], [], []
        for batch in batches:
            lost, shares = read(run, batch, half)
            after.append(lost[:, half:])
            held.append(torch.tensor(shares) * len(batch))
            alone.append(read(run, batch[:, half:], None)[0])
        told, fresh = torch.cat(after), torch.cat(alone)  # [N, half - 1] of the same tokens
        old = torch.stack(held).sum(0) / len(ids)  # [half - 1]
        full = full if full.numel() else told
        stretches = [_stretch(told, full, fresh, old, one, two, seed) for one, two in pairwise(edges)]
        results.append(
            Switch(
                contestant=run.name,
                budget=run.budget,
                gone_after=next((at + 1 for at, share in enumerate(old) if share <= GONE), None),
                recovered_after=recovered(stretches),
                stretches=stretches,
            )
        )
    return results


def recovered(stretches: Sequence[Stretch]) -> int | None:
    """The end of the last stretch that cost more than to a fresh cache; 0: none did, None: the last did."""
    dear = [number for number, one in enumerate(stretches) if one.to_fresh_interval[0] > 1]
    if not dear:
        return 0
    return None if dear[-1] == len(stretches) - 1 else stretches[dear[-1]].end


def _stretch(
    told: Tensor, full: Tensor, fresh: Tensor, old: Tensor, first: int, end: int, seed: int
) -> Stretch:
    cut = slice(first, end)
    to_full, to_fresh = ((told - other)[:, cut].mean(1) for other in (full, fresh))
    return Stretch(
        first=first,
        end=end,
        old=float(old[end - 1]),
        to_full=float(to_full.mean().exp()),
        to_full_interval=bootstrap(to_full, seed),
        to_fresh=float(to_fresh.mean().exp()),
        to_fresh_interval=bootstrap(to_fresh, seed),
    )
