"""What is due and when, as plain integers of the host: nothing here reads the device, nothing imports torch.

One `Clock` per row. Before a step `plan_passes` says which tokens attend together, and which rows give up
tokens afterwards; all layers then do the same.
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
    first, held, used = _before(clocks)
    settles = []
    for row, (clock, more) in enumerate(zip(clocks, count, strict=True)):
        clock.seen += more
        clock.held += more
        if budget is not None and clock.held > budget:
            clock.held -= stride
            settles.append(row)
    compares = _compare(clocks, settles, budget)
    compared = tuple(clock.compared for clock in clocks)
    return Pass(0, 1, first, tuple(count), held, used, tuple(settles), compares, compared)


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
        passes.append(_prompt_pass(clocks, start, end, count, budget))
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


def _prompt_pass(
    clocks: Sequence[Clock], start: int, end: int, count: Sequence[int], budget: int | None
) -> Pass:
    first, held, used = _before(clocks)
    here = tuple(_real(mine, start, end) for mine in count)
    settles = []
    for row, (clock, more) in enumerate(zip(clocks, here, strict=True)):
        clock.seen += more
        clock.held += more
        if budget is not None and clock.held > budget:
            clock.held = budget
            settles.append(row)
    compares = _compare(clocks, settles, budget)
    compared = tuple(clock.compared for clock in clocks)
    return Pass(start, end, first, here, held, used, tuple(settles), compares, compared)


def _before(clocks: Sequence[Clock]) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
    """`Pass.first`, `held` and `used`: slots are written from the first on, until something is evicted."""
    first, held = tuple(clock.seen for clock in clocks), tuple(clock.held for clock in clocks)
    return first, held, max(held) if first == held else None


def _compare(clocks: Sequence[Clock], settles: Sequence[int], budget: int | None) -> tuple[int, ...]:
    """Of the rows that settle, those whose keys were last compared long enough ago."""
    every = max(COMPARE_TOKENS, (budget or 0) // COMPARE_SHARE)
    due = [row for row in settles if clocks[row].seen - clocks[row].compared >= every]
    for row in due:
        clocks[row].compared = clocks[row].seen
    return tuple(due)
