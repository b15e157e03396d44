"""The `cache` event: what a cache holds, from one copy of small tensors to the host between two steps."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from h2o_chat.base import devices
from h2o_chat.cache.arena import Arena
from h2o_chat.cache.clock import Clock
from h2o_chat.cache.eviction import priority_of
from h2o_chat.events.events import CacheState, Gone, Heavy
from h2o_chat.models.tokenizer_calls import text_of
from h2o_chat.transformers_cache.cache import H2OCache

HEAVIEST = 20  # tokens listed in `heaviest`
PROTECTED = 2  # most protected tokens among them: nobody has to watch tokens that stay anyway
GONE = 32  # tokens listed in `gone`
RANKS = 48  # most entries of `ranks`
COUNTED = 1 << 19  # from this distance of positions on sorting is faster than counting
POOLED = 32  # a head map has at most this many rows and columns


class Observer:
    """Looks at one row, and remembers the last event, so that the next tells the changes; bounded like it."""

    def __init__(self, cache: H2OCache, tokenizer: Any, row: int = 0) -> None:
        self._cache, self._row = cache, row
        self._tokenizer = tokenizer
        self.ids: dict[int, int] = {}  # token ids by position, of tokens that some cache holds
        self._texts: dict[int, str] = {}  # text by token id: at most as many as the vocabulary has
        self.hold: dict[int, float] | None = None  # hold by position in the last event; None before the first
        self.score: dict[int, float] = {}  # score by position at the last event
        self._told = (np.empty(0, np.int64), np.empty(0))  # positions [P] in order, scores as last told
        self.holders = Holders()
        self.lost = (0, 0.0)  # `lost_mark` at the last event

    def move_to(self, cache: H2OCache, row: int) -> None:
        self._cache, self._row = cache, row

    def note_fed(self, first: int, ids: Sequence[int]) -> None:
        """Note the ids of tokens at the positions first, first + 1 ..."""
        self.ids.update(enumerate(ids, first))

    def text_of(self, position: int) -> str:
        """Text of a held token; empty if it was evicted."""
        token = self.ids.get(position)
        if token is None:
            return ""
        if token not in self._texts:
            self._texts[token] = text_of(self._tokenizer, [token])
        return self._texts[token]

    def lost_mark(self) -> tuple[int, float]:
        """(tokens seen, attention lost so far, averaged over layers and heads)."""
        arenas = self._cache.current_arenas()
        heads = sum(len(arena.layers) * arena.layer_shape.heads for arena in arenas)
        return self._seen, sum(float(arena.lost[self._row]) for arena in arenas) / max(1, heads)

    @property
    def _seen(self) -> int:
        clocks = self._cache.clocks
        return clocks[self._row].seen if self._row < len(clocks) else 0

    def state(self, watched: bool = True) -> CacheState:
        """The event for now, with the changes since the last; `watched`: somebody sees a memory panel."""
        cache, seen = self._cache, self._seen
        at, scores, protected, lately = _on_host(cache, self._row)
        held = at >= 0
        slots = np.flatnonzero(held)
        positions, which, counts = _distinct(at.ravel()[slots])

        def mean(of: NDArray[Any]) -> NDArray[Any]:
            """[P] means over the slots of each token."""
            return np.bincount(which, of.ravel()[slots], len(positions)) / counts

        caches = at.shape[0] * at.shape[1]
        hold, score, sinks = counts / caches, mean(scores), mean(protected) > 0
        recent_from = max(0, seen - self._cache.plan.shares.recent)
        before, self.lost = self.lost, self.lost_mark()
        gone, gone_tokens = self._gone(positions) if watched else ([], 0)
        kept = int(held.sum(-1).max())
        whole, rows = self.hold is None, max(1, len(cache.clocks))
        if whole or not watched:
            self.holders.forget()
        return CacheState(
            seen=seen,
            kept=kept,
            bytes=cache.bytes_held // rows,
            bytes_full=sum(arena.plain_slot_bytes for arena in cache.current_arenas()) // rows * seen,
            lost=lost_per_token(before, self.lost),
            kinds=_kinds(at, protected, recent_from),
            heaviest=self._heaviest(positions, hold, score, sinks, recent_from, seen) if watched else [],
            changed=self._changed(positions, hold, score),
            heads=_heads(at, slots, hold[which], recent_from) if watched else [],
            whole=whole,
            protected=_runs(positions[sinks]),
            holders=self.holders.changed(positions, which, slots // at.shape[2], caches) if watched else [],
            gone=gone,
            gone_tokens=gone_tokens,
            ranks=_ranks(score) if watched else [],
            # Those that lately received more than if all that is held received the same.
            attended=positions[mean(lately) * kept > 1].tolist() if watched else [],
        )

    def _heaviest(
        self,
        positions: NDArray[Any],
        hold: NDArray[Any],
        score: NDArray[Any],
        sinks: NDArray[Any],
        recent_from: int,
        seen: int,
    ) -> list[Heavy]:
        old = np.flatnonzero(positions < recent_from)
        ranked = old[np.lexsort((score[old], hold[old]))[::-1]]
        ranked = ranked[~sinks[ranked] | (np.cumsum(sinks[ranked]) <= PROTECTED)][:HEAVIEST]
        return [
            Heavy(
                position=int(positions[i]),
                text=self.text_of(int(positions[i])),
                hold=float(hold[i]),
                score=float(score[i]),
                mean=float(score[i] / (seen - positions[i])),
                kind="S" if sinks[i] else "H",
            )
            for i in ranked
        ]

    def _gone(self, positions: NDArray[Any]) -> tuple[list[Gone], int]:
        """Tokens that were held, or fed, since the last event and are in no cache now."""
        now = set(positions.tolist())
        hold = self.hold or {}
        gone = sorted((-hold.get(at, 0.0), at) for at in self.ids if at not in now)
        listed = [
            Gone(position, self.text_of(position), -hold, self.score.get(position, 0.0))
            for hold, position in gone[:GONE]
        ]
        return sorted(listed, key=lambda one: one.position), len(gone)

    def _changed(
        self, positions: NDArray[Any], hold: NDArray[Any], score: NDArray[Any]
    ) -> list[tuple[int, float, float]]:
        now = dict(zip(positions.tolist(), hold.tolist(), strict=True))
        before, marks = self.hold or {}, self._marks(positions)
        self.score = dict(zip(now, score.tolist(), strict=True))
        held_so = np.fromiter((before.get(position, -1.0) for position in now), float, len(now))
        # Smaller changes of a score would be told all the time.
        tell = (held_so != hold) | (np.abs(score - marks) > np.maximum(np.abs(score), np.abs(marks)) / 2)
        changed = [(at, now[at], self.score[at]) for at in positions[tell].tolist()]
        gone = [(position, 0.0, 0.0) for position in before if position not in now]
        self.hold = now
        self._told = positions, np.where(tell, score, marks)
        self.ids = {position: self.ids[position] for position in now if position in self.ids}
        return sorted(changed + gone)

    def _marks(self, positions: NDArray[Any]) -> NDArray[Any]:
        """The scores of these tokens in the last event; 0 where it had none."""
        told, marks = self._told
        if not len(told):
            return np.zeros(len(positions))
        at = np.minimum(np.searchsorted(told, positions), len(told) - 1)
        return np.where(told[at] == positions, marks[at], 0.0)


def lost_per_token(before: tuple[int, float], now: tuple[int, float]) -> float:
    """Attention lost per token between two of `Observer.lost_mark`, 0 to 1."""
    return (now[1] - before[1]) / max(1, now[0] - before[0])


def _on_host(cache: H2OCache, row: int) -> tuple[NDArray[Any], ...]:
    """Positions, scores, protected and lately of one row, [L, H, S] each, layers in order.

    Views where the slots are on the host, else one copy an arena. One empty slot before any token.
    """
    if not cache.current_arenas():
        return np.array([[[-1]]]), np.zeros((1, 1, 1)), np.zeros((1, 1, 1), bool), np.zeros((1, 1, 1))
    parts, most_heads = [], max(arena.layer_shape.heads for arena in cache.current_arenas())
    for arena in cache.current_arenas():
        slots = arena.slots
        # Layers with fewer KV heads than others count as much as these.
        copies = most_heads // arena.layer_shape.heads
        states = [slots.positions[:, row], priority(arena, cache.clocks, row)]
        states += [slots.protected[:, row], slots.lately[:, row]]
        if devices.reads_free(arena.device):
            parts.append([state.numpy() for state in states])
        else:
            parts.append(list(torch.stack([state.double() for state in states]).cpu().numpy()))
        if copies > 1:
            parts[-1] = [state.repeat(copies, 1) for state in parts[-1]]
    if len(parts) == 1:
        at, scores, protected, lately = parts[0]
    else:
        order = np.argsort([layer for arena in cache.current_arenas() for layer in arena.layers])
        at, scores, protected, lately = (np.concatenate(states)[order] for states in zip(*parts, strict=True))
    return at.astype(np.int64), scores, protected.astype(bool, copy=False), lately


def priority(arena: Arena, clocks: Sequence[Clock], row: int) -> Tensor:
    """The policy's priority of a row's slots, [L, H, S]: from the eviction just now, else computed."""
    seen, noted = arena.last_priority.get(row, (-1, None))
    if noted is not None and seen == clocks[row].seen:
        return noted
    return priority_of(arena, arena.slots)[:, row]


def _distinct(at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(positions [P] in order, index of each number in `at`, count of each)."""
    first = at.min() if len(at) else 0
    if len(at) == 0 or at.max() - first > COUNTED:
        return np.unique(at, return_inverse=True, return_counts=True)
    counts = np.bincount(at - first)  # a twentieth of the time of sorting
    places = np.flatnonzero(counts)
    which = np.empty(len(counts), np.int64)
    which[places] = np.arange(len(places))
    return places + first, which[at - first], counts[places]


def _kinds(at: NDArray[Any], protected: NDArray[Any], recent_from: int) -> dict[str, int]:
    """Slots by kind in the fullest cache; of equally full ones in the first with most protected slots.

    A person who pins is told the same number (`Row.protection`).
    """
    fullest = (at >= 0).sum(-1) * (at.shape[-1] + 1) + protected.sum(-1)
    layer, head = divmod(int(fullest.argmax()), at.shape[1])
    at, protected = at[layer, head], protected[layer, head]
    recent = (at >= recent_from) & (at >= 0) & ~protected
    heavy = (at >= 0) & ~protected & ~recent
    return {"S": int(protected.sum()), "H": int(heavy.sum()), "R": int(recent.sum())}


def _heads(
    at: NDArray[Any], slots: NDArray[np.int64], hold: NDArray[Any], recent_from: int
) -> list[list[float]]:
    """[layers][KV heads], pooled: mean `hold` of the used `slots` of each cache outside the recent part."""
    outside = (at >= 0) & (at < recent_from)
    of_each = np.zeros(at.shape)
    of_each.ravel()[slots] = hold
    return _pool((of_each * outside).sum(-1) / np.maximum(1, np.count_nonzero(outside, -1)))


def _runs(positions: NDArray[Any]) -> list[tuple[int, int]]:
    """(first, last) of each run of consecutive whole numbers."""
    if not len(positions):
        return []
    runs = np.split(positions, np.flatnonzero(np.diff(positions) != 1) + 1)
    return [(int(run[0]), int(run[-1])) for run in runs]


def _ranks(score: NDArray[Any]) -> list[tuple[int, float]]:
    """(rank, score): the first, the last, and some between, evenly spaced on a logarithmic axis."""
    if not len(score):
        return []
    ranked, ranks = np.sort(score)[::-1], _spaced(len(score))
    return list(zip(ranks.tolist(), ranked[ranks - 1].tolist(), strict=True))


@lru_cache(maxsize=256)
def _spaced(count: int) -> NDArray[Any]:
    """Up to RANKS whole numbers from 1 to `count`, evenly spaced on a logarithmic axis."""
    return np.unique(np.geomspace(1, count, RANKS).round().astype(int))


def _pool(values: NDArray[Any]) -> list[list[float]]:
    """[layers, heads] averaged down to at most POOLED x POOLED."""
    if max(values.shape) > POOLED:
        rows = np.array_split(values, min(POOLED, values.shape[0]), 0)
        pooled = np.stack([part.mean(0) for part in rows])
        columns = np.array_split(pooled, min(POOLED, values.shape[1]), 1)
        values = np.stack([column.mean(1) for column in columns], 1)
    return [[round(x, 4) for x in row] for row in values.tolist()]


MOST_DIGITS = 4 << 20  # hexadecimal digits in one event: a line of a recording has a limit


class Holders:
    """Remembers the last bitmaps, so that only changes are told; bounded like the cache."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Tell everything the next time."""
        self._positions: NDArray[np.int64] = np.empty(0, np.int64)
        self._told: NDArray[np.uint8] = np.empty((0, 0), np.uint8)

    def changed(
        self, positions: NDArray[np.int64], which: NDArray[np.int64], where: NDArray[np.int64], caches: int
    ) -> list[tuple[int, str]]:
        """(position, bitmap as hexadecimal digits) of the tokens whose caches have changed.

        Args:
            positions: [P] of the held tokens, in order.
            which: for each slot in use, the index of its token.
            where: for each slot in use, the number of its cache.
            caches: layers x KV heads.
        """
        bits = np.zeros((len(positions), caches), bool)
        bits.ravel()[which * caches + where] = True
        maps = np.packbits(bits, 1)
        news = np.ones(len(positions), bool)
        if len(self._positions) and self._told.shape[1] == maps.shape[1]:
            at = np.minimum(np.searchsorted(self._positions, positions), len(self._positions) - 1)
            news = (self._positions[at] != positions) | (self._told[at] != maps).any(1)
        tell = np.flatnonzero(news)
        digits = 2 * maps.shape[1]
        if len(tell) > (most := MOST_DIGITS // digits):
            tell = np.sort(tell[np.argsort(-bits[tell].sum(1), kind="stable")[:most]])
        known = ~news
        known[tell] = True
        self._positions, self._told = positions[known], maps[known]
        text = maps[tell].tobytes().hex()
        return [
            (position, text[at * digits : (at + 1) * digits])
            for at, position in enumerate(positions[tell].tolist())
        ]
