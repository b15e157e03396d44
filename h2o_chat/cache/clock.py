"""What is due and when, as plain integers of the host: nothing here reads the device, nothing imports torch.

One `Clock` per row. Before a step `decode_pass` or `prompt_passes` counts its tokens, and says which attend
together and which rows give up tokens afterwards; all layers then do the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Clock:
    """One row's counts."""

    seen: int = 0  # real tokens fed
    in_use: int = 0  # slots in use in the fullest KV head
    base: int = 0  # the position whose rotation index is 0
    near_from: int = 0  # keys at positions below this are clamped
    protect_below: int = 0  # tokens at positions below this are protected: sinks, system prompt
    pins: frozenset[int] = frozenset()  # positions not fed yet that are protected as they are fed

    def protects(self, tokens: int) -> tuple[int, ...]:
        """Which of the next so many tokens are protected as they are fed: 0 for the next one, and so on."""
        end = self.seen + tokens
        safe = {*range(self.seen, min(end, self.protect_below)), *self.pins}
        return tuple(sorted(position - self.seen for position in safe if position < end))

    def advance(self, tokens: int, budget: int, leaves: int) -> bool:
        """Counts tokens fed; whether the row is over its budget: then it gives tokens up, `leaves` stay."""
        self.seen += tokens
        self.in_use += tokens
        if self.pins:
            self.pins = frozenset(position for position in self.pins if position >= self.seen)
        if self.in_use <= budget:
            return False
        self.in_use = leaves
        return True


@dataclass(frozen=True)
class Pass:
    """Tokens that attend at once. Afterwards the rows that are over their budget give tokens up."""

    start: int
    end: int  # columns of the call, padding included
    first: tuple[int, ...]  # of each row: the position of its first real token here
    count: tuple[int, ...]  # of each row: its real tokens here
    in_use: tuple[int, ...]  # of each row: slots in use before
    protected: tuple[tuple[int, ...], ...]  # of each row: which of its tokens are, see `Clock.protects`
    settles: tuple[int, ...]  # rows that give up tokens afterwards

    @property
    def tokens(self) -> int:
        """Columns."""
        return self.end - self.start

    @property
    def seen(self) -> tuple[int, ...]:
        """Of each row: tokens fed to it afterwards."""
        return tuple(first + count for first, count in zip(self.first, self.count, strict=True))

    @property
    def used(self) -> int | None:
        """Leading slots that may be in use before: they are written from the first on, until something is
        evicted; None: any slot."""
        return max(self.in_use) if self.first == self.in_use else None

    @property
    def even(self) -> bool:
        """All rows are of one age and have no padding."""
        return len(set(self.first)) == len(set(self.in_use)) == 1 and set(self.count) == {self.tokens}


def decode_pass(clocks: Sequence[Clock], count: Sequence[int], budget: int, stride: int) -> Pass:
    """One token a row, written into an empty slot; a row settles when that was the last one.

    Advances the clocks.

    Args:
        count: 1, or 0 for padding, of each row.
        budget: slots that may be in use.
        stride: slots that are given up at once.
    """
    return _pass(clocks, 0, 1, count, budget, leaves=budget + 1 - stride)


def prompt_passes(
    clocks: Sequence[Clock], columns: int, count: Sequence[int], budget: int, chunk: int
) -> list[Pass]:
    """The passes of a prompt, `chunk` columns each; chunks between which no row gives anything up are one
    pass: the same numbers for fewer products. Advances the clocks.

    Args:
        columns: of the call.
        count: real tokens of each row, at its front.
    """

    def real(end: int) -> list[int]:
        """Real tokens of each row from `start` to `end`."""
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
        passes.append(_pass(clocks, start, end, real(end), budget, leaves=budget))
        start = end
    return passes


def _pass(
    clocks: Sequence[Clock], start: int, end: int, count: Sequence[int], budget: int, leaves: int
) -> Pass:
    """The pass of these columns, `count` real tokens of each row; `leaves` stay in a row that settles."""
    first, in_use = tuple(clock.seen for clock in clocks), tuple(clock.in_use for clock in clocks)
    rows = list(zip(clocks, count, strict=True))
    protected = tuple(clock.protects(more) for clock, more in rows)
    settles = tuple(row for row, (clock, more) in enumerate(rows) if clock.advance(more, budget, leaves))
    return Pass(start, end, first, tuple(count), in_use, protected, settles)
