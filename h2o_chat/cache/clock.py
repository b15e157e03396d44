"""What is due and when, as plain integers of the host: nothing here reads the device, nothing imports torch.

One `Clock` per row. Before a step `decode_pass` or `prompt_passes` says which tokens attend together, and
which rows give up tokens afterwards; all layers then do the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

COMPARE_TOKENS = 16
"""Tokens at least between two comparisons of a row's keys, for a policy that asks ..."""
COMPARE_SHARE = 16
"""... and at least 1 / COMPARE_SHARE of the budget: a token's share of comparing all keys with all is then
O(budget), and a token is compared before it leaves the recent part."""


@dataclass
class Clock:
    """One row's counts."""

    seen: int = 0
    """Real tokens fed."""
    held: int = 0
    """Slots in use in the fullest KV head."""
    base: int = 0
    """The position whose rotation index is 0."""
    near_from: int = 0
    """Keys at positions below this are clamped."""
    compared: int = 0
    """`seen` when the keys were last compared: tokens from this position on never were."""
    protect_below: int = 0
    """New tokens at positions below this are protected: sinks, system prompt."""
    pins: frozenset[int] = frozenset()
    """Positions not fed yet that are protected as they are fed."""

    def advance(self, tokens: int, budget: int | None, leaves: int) -> bool:
        """Counts tokens fed; whether the row is over its budget: then it gives tokens up, `leaves` stay."""
        self.seen += tokens
        self.held += tokens
        if self.pins:
            self.pins = frozenset(position for position in self.pins if position >= self.seen)
        if budget is None or self.held <= budget:
            return False
        self.held = leaves
        return True

    def protects(self, tokens: int) -> tuple[int, ...]:
        """Which of the next so many tokens are protected as they are fed: 0 for the next one, and so on."""
        end = self.seen + tokens
        safe = {*range(self.seen, min(end, self.protect_below)), *self.pins}
        return tuple(sorted(position - self.seen for position in safe if position < end))


@dataclass(frozen=True)
class Pass:
    """Tokens that attend at once. Afterwards the rows that are over their budget give tokens up."""

    start: int
    end: int
    """Columns of the call, padding included."""
    first: tuple[int, ...]
    """Of each row: the position of its first real token here."""
    count: tuple[int, ...]
    """Of each row: its real tokens here."""
    held: tuple[int, ...]
    """Of each row: slots in use before."""
    used: int | None
    """Leading slots that may be in use before; None: any slot."""
    protected: tuple[tuple[int, ...], ...]
    """Of each row: which of its tokens here are protected as they are fed, see `Clock.protects`."""
    settles: tuple[int, ...]
    """Rows that give up tokens afterwards."""
    compares: tuple[int, ...]
    """Those of them whose keys are compared before that."""
    compared: tuple[int, ...]
    """Of each row: tokens from this position on were not compared, nor will be in this pass."""

    @property
    def tokens(self) -> int:
        """Columns."""
        return self.end - self.start

    @property
    def even(self) -> bool:
        """All rows are of one age and have no padding."""
        return len(set(self.first)) == len(set(self.held)) == 1 and set(self.count) == {self.tokens}


def decode_pass(clocks: Sequence[Clock], count: Sequence[int], budget: int | None, stride: int) -> Pass:
    """One token a row, written into an empty slot; a row settles when that was the last one.

    Advances the clocks.

    Args:
        count: 1, or 0 for padding, of each row.
        budget: slots that may be in use; None: nothing is ever given up.
        stride: slots that are given up at once.
    """
    leaves = 0 if budget is None else budget + 1 - stride
    return _pass(clocks, 0, 1, tuple(count), budget, leaves)


def prompt_passes(
    clocks: Sequence[Clock], columns: int, count: Sequence[int], budget: int | None, chunk: int
) -> list[Pass]:
    """The passes of a prompt, `chunk` columns each. Advances the clocks.

    Chunks between which no row gives anything up are one pass: the same numbers for fewer products.

    Args:
        columns: of the call.
        count: real tokens of each row, at its front.
    """
    passes = []
    start = 0
    while start < columns:
        end = min(start + chunk, columns)
        while end < columns and not _over(clocks, count, start, end + chunk, budget):
            end = min(end + chunk, columns)
        here = tuple(_real(mine, start, end) for mine in count)
        passes.append(_pass(clocks, start, end, here, budget, budget or 0))
        start = end
    return passes


def _real(count: int, start: int, end: int) -> int:
    """Real tokens of a row between two columns."""
    return max(0, min(count, end) - start)


def _over(clocks: Sequence[Clock], count: Sequence[int], start: int, end: int, budget: int | None) -> bool:
    """Whether some row has more than its budget after these columns."""
    if budget is None:
        return False
    return any(
        clock.held + _real(mine, start, end) > budget for clock, mine in zip(clocks, count, strict=True)
    )


def _pass(
    clocks: Sequence[Clock], start: int, end: int, count: tuple[int, ...], budget: int | None, leaves: int
) -> Pass:
    """The pass of these columns, `count` real tokens of each row. Advances the clocks."""
    first, held = tuple(clock.seen for clock in clocks), tuple(clock.held for clock in clocks)
    # Slots are written from the first on, until something is evicted.
    used = max(held) if first == held else None
    pairs = list(zip(clocks, count, strict=True))
    protected = tuple(clock.protects(more) for clock, more in pairs)
    over = [clock.advance(more, budget, leaves) for clock, more in pairs]
    settles = tuple(row for row, gives_up in enumerate(over) if gives_up)
    compares = _compare(clocks, settles, budget)
    compared = tuple(clock.compared for clock in clocks)
    return Pass(start, end, first, count, held, used, protected, settles, compares, compared)


def _compare(clocks: Sequence[Clock], settles: Sequence[int], budget: int | None) -> tuple[int, ...]:
    """Of the rows that settle, those whose keys were last compared long enough ago."""
    every = max(COMPARE_TOKENS, (budget or 0) // COMPARE_SHARE)
    due = [row for row in settles if clocks[row].seen - clocks[row].compared >= every]
    for row in due:
        clocks[row].compared = clocks[row].seen
    return tuple(due)
