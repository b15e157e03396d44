"""Perplexity after heavy hitters are taken away (2306.14048, section 3.2).

Documents are read to their middle with a cache of everything. Then, in every layer and KV head, a share of
the tokens is dropped, and the second half is read: the heaviest by attention accumulated so far, the heaviest
but the first four (which models use as sinks), or as many random ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from h2o_chat.base.progress import Tick, unheard
from h2o_chat.cache.arena import Arena
from h2o_chat.lab.eval.perplexity import ROWS, feed_of, nll
from h2o_chat.lab.shared.intervals import bootstrap
from h2o_chat.models.load import Loaded
from h2o_chat.policies.policies import Slots
from h2o_chat.transformers_cache.cache import H2OCache
from h2o_chat.transformers_cache.probe import probe

SHARES = (0.01, 0.05, 0.2)
SINKS = 4
COLUMNS = 32
"""Tokens fed at once: nothing is given up, so it changes no figure."""


@dataclass(frozen=True)
class Removed:
    """Perplexity of the second half without some tokens of the first, to that with all of them."""

    what: str
    """heavy | heavy but sinks | random"""
    share: float
    """Share of the first half's tokens, per layer and KV head."""
    ratio: float
    interval: tuple[float, float]
    """95%, bootstrap over documents."""


def drop(arena: Arena, going: Tensor) -> None:
    """Empties the slots [L, R, H, S] of an arena."""
    arena.slots.positions[going] = -1
    arena.slots.score[going] = 0
    arena.hold(arena.slots.states)


def going(slots: Slots, what: str, share: float, generator: torch.Generator) -> Tensor:
    """Slots to drop, equally many in every layer, row and head. [L, R, H, S] bool"""
    score, held = slots.score.sum(-1), slots.positions >= 0
    if what == "random":
        score = torch.rand(score.shape, generator=generator).to(score)
    if what == "heavy but sinks":
        held = held & (slots.positions >= SINKS)
    count = max(1, round(share * int((slots.positions[0, 0, 0] >= 0).sum())))
    found = score.masked_fill(~held, -torch.inf).topk(count).indices
    return torch.zeros_like(held).scatter_(-1, found, True)


def removal(
    loaded: Loaded, ids: Tensor, seed: int, tick: Tick = unheard, shares: Sequence[float] = SHARES
) -> list[Removed]:
    """Measures all kinds and shares on documents [N, L] that fit the window."""
    kinds = [(what, share) for what in ("heavy", "heavy but sinks", "random") for share in shares]
    middle, positions = ids.shape[1] // 2, probe(loaded.model)
    whole: list[Tensor] = []
    without: dict[tuple[str, float], list[Tensor]] = {kind: [] for kind in kinds}
    batches = torch.split(ids.to(loaded.device), ROWS)
    for number, batch in enumerate(batches):
        generator = torch.Generator().manual_seed(seed + number)
        cache = H2OCache(policy="full", positions=positions)
        for _ in nll(feed_of(loaded), batch[:, : middle + 1], cache, COLUMNS):
            pass  # the first half
        read = cache.snapshot()

        def second_half(batch: Tensor = batch, cache: H2OCache = cache) -> Tensor:
            return torch.cat(list(nll(feed_of(loaded), batch[:, middle:], cache, COLUMNS)), 1).mean(1).cpu()

        whole.append(second_half())
        for done, kind in enumerate(kinds, 1):
            cache.restore(read)
            for arena in cache.arenas:
                drop(arena, going(arena.slots, *kind, generator))
            without[kind].append(second_half())
            tick((number + done / len(kinds)) / len(batches))
    full = torch.cat(whole)
    results = []
    for (what, share), parts in without.items():
        lost = torch.cat(parts) - full  # [N]
        results.append(Removed(what, share, float(lost.mean().exp()), bootstrap(lost, seed)))
    return results
