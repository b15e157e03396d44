"""Schedules evictions with plain integers on the host: no torch, no reads from the device.

A step is one call of the model. A pass is a part of its tokens that attend together before rows evict: a step
has one for decoded tokens, often several for a prompt. One `Clock` per row. Before a step, `decode_pass` or
`prompt_passes` counts its tokens and makes its passes; all layers do the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Clock:
    """Counters of one row."""

    seen: int = 0  # real tokens fed
    in_use: int = 0  # slots in use in the fullest KV head
    rope_origin: int = 0  # the position whose rotation index is 0
    clamped_below: int = 0  # keys at positions below this are clamped
    protect_below: int = 0  # tokens at positions below this are protected: sinks, system prompt
    pins: frozenset[int] = frozenset()  # positions not fed yet that are protected as they are fed

    def protects(self, tokens: int) -> tuple[int, ...]:
        """Indices of those among the next `tokens` tokens that are protected; 0 is the next one."""
        end = self.seen + tokens
        safe = {*range(self.seen, min(end, self.protect_below)), *self.pins}
        return tuple(sorted(position - self.seen for position in safe if position < end))

    def advance(self, tokens: int, budget: int, keeps: int) -> bool:
        """Counts tokens fed; returns whether the row is over its budget: it evicts, `keeps` slots stay."""
        self.seen += tokens
        self.in_use += tokens
        if self.pins:
            self.pins = frozenset(position for position in self.pins if position >= self.seen)
        if self.in_use <= budget:
            return False
        self.in_use = keeps
        return True


@dataclass(frozen=True)
class Pass:
    """Tokens that attend together. Afterwards the rows over their budget evict."""

    start: int
    end: int  # columns of the call, padding included
    first: tuple[int, ...]  # per row: position of its first real token in this pass
    count: tuple[int, ...]  # per row: its real tokens in this pass
    in_use: tuple[int, ...]  # per row: slots in use before
    protected: tuple[tuple[int, ...], ...]  # per row: its protected tokens, see `Clock.protects`
    evicts: tuple[int, ...]  # rows that evict afterwards

    @property
    def tokens(self) -> int:
        return self.end - self.start

    @property
    def seen(self) -> tuple[int, ...]:
        """Per row: tokens fed after this pass."""
        return tuple(first + count for first, count in zip(self.first, self.count, strict=True))

    @property
    def used(self) -> int | None:
        """Leading slots that may be in use before this pass; None: any slot, since something was evicted."""
        return max(self.in_use) if self.first == self.in_use else None

    @property
    def even(self) -> bool:
        """Whether all rows have the same age and no padding."""
        return len(set(self.first)) == len(set(self.in_use)) == 1 and set(self.count) == {self.tokens}


def decode_pass(clocks: Sequence[Clock], count: Sequence[int], budget: int, stride: int) -> Pass:
    """A pass of one token per row, written into an empty slot; a row evicts when no slot is left empty.

    Advances the clocks.

    Args:
        count: per row: 1, or 0 for padding.
        budget: slots that may be in use.
        stride: slots that are evicted together.
    """
    return _pass(clocks, 0, 1, count, budget, keeps=budget + 1 - stride)


def prompt_passes(
    clocks: Sequence[Clock], columns: int, count: Sequence[int], budget: int, chunk: int
) -> list[Pass]:
    """The passes of a prompt, `chunk` columns each. Advances the clocks.

    Chunks between which no row evicts are merged into one pass: the same result with fewer products.

    Args:
        columns: columns of the call, padding included.
        count: per row: its real tokens, which stand first.
    """

    def real(end: int) -> list[int]:
        """Per row: its real tokens from `start` to `end`."""
        return [max(0, min(mine, end) - start) for mine in count]

    passes = []
    start = 0
    while start < columns:
        end = start + chunk
        while end < columns and all(
            clock.in_use + more <= budget for clock, more in zip(clocks, real(end + chunk), strict=True)
        ):
            end += chunk
        end = min(end, columns)
        passes.append(_pass(clocks, start, end, real(end), budget, keeps=budget))
        start = end
    return passes


def _pass(
    clocks: Sequence[Clock], start: int, end: int, count: Sequence[int], budget: int, keeps: int
) -> Pass:
    """The pass of columns [start, end); a row that evicts keeps `keeps` slots."""
    first, in_use = tuple(clock.seen for clock in clocks), tuple(clock.in_use for clock in clocks)
    rows = list(zip(clocks, count, strict=True))
    protected = tuple(clock.protects(more) for clock, more in rows)
    evicts = tuple(row for row, (clock, more) in enumerate(rows) if clock.advance(more, budget, keeps))
    return Pass(start, end, first, tuple(count), in_use, protected, evicts)
