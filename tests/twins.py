"""Slow literal twins of the policies in `h2o_chat.policies.references`: plain lists, one token at a time.

Each is an `OracleHead` (see `oracle.py`) that ranks its tokens otherwise. No line is shared with `h2o_chat`.
"""

import torch
from oracle import Held, OracleHead
from torch import Tensor


class Twin(OracleHead):
    """A rule like the published one: the newest are safe, the lowest rank goes, ties drop the oldest."""

    share = 0.25  # of the budget that the newest tokens have
    sinks = 0  # first tokens that stay

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


class Observed(Twin):
    """SnapKV while decoding: the window is soft, neighbours of a token by age are worth what it is."""

    def attend(self, queries: Tensor, scaling: float) -> Tensor:
        for token in self.held:
            token.score *= 31 / 32
        return super().attend(queries, scaling)

    def rank(self, token: Held) -> float:
        at = self.held.index(token)
        return max(near.score for near in self.held[max(0, at - 3) : at + 4])


class WholePrompt(OracleHead):
    """The published algorithm with its prompt pass: nobody goes while `reading`, then all at once."""

    reading = False

    def evict(self) -> None:
        while not self.reading and len(self.held) > self.budget:
            super().evict()


TWINS: dict[str, type[OracleHead]] = {
    "lru": LeastRecentlyUsed,
    "snapkv": Observed,
}
