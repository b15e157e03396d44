"""Slow literal twins of the policies in `h2o_chat.policies.references`: plain lists, one token at a time.

Each is an `OracleHead` (see `oracle.py`) that ranks its tokens otherwise. No line is shared with `h2o_chat`.
"""

from itertools import pairwise

import torch
from oracle import Held, OracleHead
from torch import Tensor


class Twin(OracleHead):
    """A frame like the published one: the newest are safe, the lowest rank goes, ties drop the oldest."""

    share = 0.25
    """Of the budget that the newest tokens have."""
    sinks = 0
    """First tokens that stay."""

    def rank(self, token: Held) -> float:
        raise NotImplementedError

    def evict(self) -> None:
        if len(self.held) > self.budget:
            older = self.held[: len(self.held) - int(self.budget * self.share)]
            may_go = [token for token in older if token.position >= self.sinks]
            self.held.remove(min(may_go, key=lambda token: (self.rank(token), token.position)))


class UsesTwin(Twin):
    """A query uses the tokens that it gives more than their fair share."""

    def attend(self, queries: Tensor, scaling: float) -> Tensor:
        keys = torch.stack([token.key for token in self.held])
        given = torch.softmax(queries @ keys.T * scaling, dim=-1).sum(0).tolist()
        now = self.held[-1].position
        for token, received in zip(self.held, given, strict=True):
            if received > len(queries) / len(self.held):
                self.uses(token).append(now)
        return super().attend(queries, scaling)

    @staticmethod
    def uses(token: Held) -> list[int]:
        """Positions of the queries that used a token."""
        return vars(token).setdefault("uses", [])


class LeastRecentlyUsed(UsesTwin):
    def rank(self, token: Held) -> float:
        return max([token.position, *self.uses(token)])  # arriving is a use


class LeastFrequentlyUsed(UsesTwin):
    def rank(self, token: Held) -> float:
        return len(self.uses(token))


class Observed(Twin):
    """SnapKV while decoding: the window is soft, neighbours of a token by age are worth what it is."""

    def attend(self, queries: Tensor, scaling: float) -> Tensor:
        for token in self.held:
            token.score *= 31 / 32
        return super().attend(queries, scaling)

    def rank(self, token: Held) -> float:
        at = self.held.index(token)
        return max(near.score for near in self.held[max(0, at - 3) : at + 4])


class Strided(Twin):
    """Every 32nd token, as many of the newest as a quarter of the budget holds; nobody else matters."""

    share = 0.5
    heavy = False
    newest_columns: list[int]
    """Positions of the columns that stay."""

    def evict(self) -> None:
        columns = [p for p in range(self.held[-1].position + 1) if self.is_column(p)]
        self.newest_columns = columns[-self.columns :]
        super().evict()

    def rank(self, token: Held) -> float:
        if token.position in self.newest_columns:
            return float("inf")
        return token.score if self.heavy else 0.0

    @property
    def columns(self) -> int:
        return max(1, self.budget // 4)

    @staticmethod
    def is_column(position: int) -> bool:
        return position % 32 == 0


class StridedHeavy(Strided):
    heavy = True


class Fixed(Strided):
    """The last 4 of every 32, in as many blocks."""

    @property
    def columns(self) -> int:
        return max(1, self.budget // 16) * 4

    @staticmethod
    def is_column(position: int) -> bool:
        return position % 32 in (28, 29, 30, 31)


class FixedHeavy(Fixed):
    heavy = True


def told(position: int) -> bool:
    """Runs of four tokens that were told, seven that were generated."""
    return position % 11 < 4


class ByOutputChange(Twin):
    """CAOTE's output change (2504.14051) on attention that is forgotten at .95 a query; four sinks."""

    sinks = 4
    changes: dict[int, float]
    """How far the output would move without each token, by its position."""

    def attend(self, queries: Tensor, scaling: float) -> Tensor:
        for token in self.held:
            token.score *= 0.95
        return super().attend(queries, scaling)

    def evict(self) -> None:
        total = sum(one.score for one in self.held)
        output = sum(one.score / total * one.value for one in self.held)
        self.changes = {}
        if len(self.held) > 1:  # without the only one there is no output
            for token in self.held:
                moved = float(torch.linalg.vector_norm(token.value - output))
                share = token.score / total
                self.changes[token.position] = share / (1 - share) * moved
        super().evict()


class TurnIsolation(ByOutputChange):
    """FlowKV: what is left of earlier turns stays, as long as the newest has something to give."""

    share = 0.125

    def rank(self, token: Held) -> float:
        at = len(self.held) - 1
        while at > 0 and not (told(self.held[at].position) and not told(self.held[at - 1].position)):
            at -= 1
        if self.held.index(token) < at:
            return 1e9 + token.position
        return self.changes[token.position]


class FairShare(ByOutputChange):
    """Each message has as many slots as any other; the best of it stay."""

    def rank(self, token: Held) -> float:
        messages = [[self.held[0]]]
        for before, one in pairwise(self.held):
            if told(one.position) == told(before.position):
                messages[-1].append(one)
            else:
                messages.append([one])
        (mine,) = [message for message in messages if token in message]
        return -sorted(mine, key=lambda one: (-self.changes[one.position], one.position)).index(token)


class WholePrompt(OracleHead):
    """The published algorithm with its prompt pass: nobody goes while `reading`, then all at once."""

    reading = False

    def evict(self) -> None:
        while not self.reading and len(self.held) > self.budget:
            super().evict()


TWINS: dict[str, type[OracleHead]] = {
    "lru": LeastRecentlyUsed,
    "lfu": LeastFrequentlyUsed,
    "snapkv": Observed,
    "strided": Strided,
    "strided-h2": StridedHeavy,
    "fixed": Fixed,
    "fixed-h2": FixedHeavy,
    "turn-isolation": TurnIsolation,
    "fair-share": FairShare,
}
