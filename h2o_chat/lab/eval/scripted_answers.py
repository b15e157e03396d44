"""Answers to the questions of scripted conversations, each read as the engine reads it.

A question is a branch: the conversation goes on as if it had not been asked.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from h2o_chat.base.errors import GenerationError
from h2o_chat.base.progress import Tick, unheard
from h2o_chat.engine.row import share_held
from h2o_chat.engine.runner import Runner
from h2o_chat.lab.eval.scripted_conversation import Script
from h2o_chat.models.load import Loaded
from h2o_chat.transformers_cache.cache import H2OCache
from h2o_chat.transformers_cache.snapshot import Snapshot

FULL_CHUNK = 64
"""Tokens of a chunk without eviction, where chunks change nothing."""


def answers(
    loaded: Loaded,
    scripts: Sequence[Script],
    cache: H2OCache,
    tokens: int,
    tick: Tick = unheard,
) -> list[list[str | None]]:
    """Greedy answers to the questions of every conversation, in order.

    Args:
        cache: a fresh one, made with the model's positions.
        tokens: of an answer at most.

    Returns:
        None for an answer that the `full` policy has no room for in the model's window.

    Raises:
        BudgetError: more is pinned than may be.
        GenerationError: the model's logits cannot be chosen from.
    """
    runner, found = Runner(loaded, cache), list[list[str | None]]()
    for number, script in enumerate(scripts):
        found.append(_Reading(runner, script, tokens).answers())
        tick((number + 1) / len(scripts))
    return found


class _Reading:
    """One conversation, read from its beginning."""

    def __init__(self, runner: Runner, script: Script, tokens: int) -> None:
        self.runner, self.script, self.tokens = runner, script, tokens
        self.bounded = runner.cache.plan.shares.bounded
        self.fed = 0
        runner.cache.reset()
        runner.rows = 1
        runner.cache.protect(script.protected, row=0)
        runner.cache.pin(script.pins, row=0)

    def answers(self) -> list[str | None]:
        """Feeds the conversation up to its last question; None from where it is longer than the window."""
        count, found = sum(feed.asks for feed in self.script.feeds), list[str | None]()
        for feed in self.script.feeds:
            if len(found) == count:
                break  # nothing is asked any more
            if not feed.asks:
                if self._feed(feed.ids, feed.prompt) is None:
                    break
                continue
            state, fed = self.runner.take(0), self.fed
            ids = feed.ids
            if feed.recall:
                shares = self.runner.cache.plan.shares
                budget = shares.budget if shares.bounded else None
                ids = self.script.asked_again(len(found), _Held(state), budget)
            self.runner.replace_rows([_without_pins(state)])
            answer = list(self._answer(ids))
            found.append(self.script.text(ids, answer) if answer else None)
            self.runner.replace_rows([state])
            self.fed = fed
        return found + [None] * (count - len(found))

    def _answer(self, ids: list[int]) -> Iterator[int]:
        """The likeliest tokens after a question."""
        logits = self._feed(ids, prompt=True)
        for number in range(self.tokens):
            if logits is None:
                return
            if bool((torch.isnan(logits) | torch.isposinf(logits)).any()):
                raise GenerationError("The model produced NaN or infinite logits.", "Try --dtype float32.")
            token = int(logits.argmax())
            yield token
            if token in self.runner.eos or number + 1 == self.tokens:
                return
            logits = self._feed([token], prompt=False)

    def _feed(self, ids: list[int], prompt: bool) -> Tensor | None:
        """Logits [V] after the last token; None where the full cache would pass the model's window."""
        size, logits = self.runner.cache.pass_tokens if self.bounded else FULL_CHUNK, None
        for at in range(0, len(ids), size):
            piece = ids[at : at + size]
            self.fed += len(piece)
            if not self.bounded and self.fed > self.runner.trained.window:
                return None
            logits = self.runner.feed([piece], prompt)[0, -1].float()
        return logits


def _without_pins(state: Snapshot) -> Snapshot:
    """The state with no pins ahead: a branch has other tokens there."""
    (clock,) = state.clocks
    return replace(state, clocks=[replace(clock, pins=frozenset())])


@dataclass(frozen=True)
class _Held:
    """The words that a snapshot holds, as `Row.held` has it."""

    state: Snapshot

    def held(self, positions: range) -> float:
        """Share of the tokens at these positions that some layer and head still holds."""
        return share_held([part.states["positions"][:, 0] for part in self.state.parts], positions)
