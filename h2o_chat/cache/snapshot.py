"""Copies of everything that a cache holds: of all its rows, of one of them, of several put together."""

from dataclasses import dataclass, replace

import torch

from h2o_chat.cache.arena import Part
from h2o_chat.cache.clock import Clock
from h2o_chat.cache.policies import Shares


@dataclass(frozen=True)
class Snapshot:
    """Everything that a cache holds; `H2OCache.restore` puts it back."""

    policy: str
    shares: Shares
    bits: int | None  # of a number in the slots; None: as the model computes it
    parts: list[Part]  # none before the first token
    clocks: list[Clock]  # of each row, see `H2OCache.clocks`
    fresh: Clock  # of rows without a clock of their own
    fed: int  # columns, padding included

    def row(self, number: int) -> "Snapshot":
        """One row of it, as views; `fed` is then without padding."""
        cut = slice(number, number + 1)
        parts = [
            Part(
                part.layers,
                replace(part.shape, rows=1),
                {name: state[:, cut] for name, state in part.states.items()},
                part.lost[cut],
            )
            for part in self.parts
        ]
        clock = replace(self.clocks[number])
        return replace(self, parts=parts, clocks=[clock], fed=clock.seen)

    def copy(self) -> "Snapshot":
        """With tensors of its own."""
        parts = [
            replace(part, states={name: s.clone() for name, s in part.states.items()}, lost=part.lost.clone())
            for part in self.parts
        ]
        return replace(self, parts=parts)


def together(rows: list[Snapshot]) -> Snapshot:
    """Rows of one cache, or of caches alike, as one snapshot of all of them."""
    first = rows[0]
    parts = [
        Part(
            part.layers,
            replace(part.shape, rows=len(rows)),
            {name: torch.cat([row.parts[n].states[name] for row in rows], 1) for name in part.states},
            torch.cat([row.parts[n].lost for row in rows]),
        )
        for n, part in enumerate(first.parts)
    ]
    clocks = [replace(row.clocks[0]) for row in rows]
    return replace(first, parts=parts, clocks=clocks, fed=max(row.fed for row in rows))
