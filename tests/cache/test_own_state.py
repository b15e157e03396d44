"""A policy with a state of its own, added as docs/ARCHITECTURE.md says: a line in the table, and a class.

Allocation, rows, snapshots, the saved file and byte counts follow from the line; nothing else is told of it.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from feeding import kept
from oracle import ATTENTION, Held, OracleCache, OracleHead
from test_exactness import assert_same_steps, noise
from tiny_models import tiny
from torch import Tensor

from h2o_chat import H2OCache
from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import UsageError
from h2o_chat.cache import absorb, arena, state
from h2o_chat.cache.forward_call import Step
from h2o_chat.engine import saved_cache
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Token
from h2o_chat.models.load import load
from h2o_chat.policies import policies
from h2o_chat.policies.policies import Policy, Slots
from h2o_chat.policies.scores import PerRow, Received

SLOTS = 24
HALF_LIFE = 64


class LastHit(Received):
    """1 + the position of the last query that gave the token more than 1 / SLOTS of its attention."""

    def gained(self, decay_factor: float, attention: Tensor, at: Tensor, later: Tensor) -> Tensor:
        hits = attention.mean(-3) > 1 / SLOTS  # [R, H, N, T]
        return (hits * (at + 1)[:, None, :, None]).amax(-2).int()

    def gained_at_once(self, decay_factor: float, attention: Tensor, at: Tensor) -> Tensor:
        return ((attention.mean(-2) > 1 / SLOTS) * (at + 1)[:, None]).int()

    def add(self, decay_factor: float, state: Tensor, gain: Tensor, first: PerRow, count: PerRow) -> Tensor:
        return torch.maximum(state, gain)

    def together(self, one: Tensor, other: Tensor) -> Tensor:
        return torch.maximum(one, other)


def halvings(end: Tensor) -> Tensor:
    """How often everything was halved before the query at position `end` - 1 gave something."""
    return (end - 1).div(HALF_LIFE, rounding_mode="floor")


class Halved(Received):
    """Attention received, halved before the query at each 64th position."""

    def gained(self, decay_factor: float, attention: Tensor, at: Tensor, later: Tensor) -> Tensor:
        return super().gained(0.5, attention, at, halvings(at + later + 1) - halvings(at + 1))

    def add(self, decay_factor: float, state: Tensor, gain: Tensor, first: PerRow, count: PerRow) -> Tensor:
        start, queries = (torch.tensor(of_row, device=state.device) for of_row in (first, count))
        often = (halvings(start + queries) - halvings(start)) * (queries > 0)  # padding halves nothing
        return gain + state * 0.5 ** often.to(state.dtype)[:, None, None, None]


def longest_not_hit(slots: Slots) -> Tensor:
    """The longest not hit; among equals the less attended to. [L, R, H, S]"""
    score = slots.score.sum(-1)
    return slots.last_hit + score / (1 + score)


HALVE = Policy(
    longest_not_hit,
    decay_factor=0.0,
    sinks=0,
    heavy=True,
    recent=0.25,
    looks_at=("last_hit",),
    scores=Halved(),
    grows={"last_hit": LastHit()},
    name="halve",
)


class HalveHead(OracleHead):
    """The policy, computed literally."""

    def attend(self, queries: Tensor, scaling: float) -> Tensor:
        keys = torch.stack([token.key for token in self.held])
        given = torch.softmax(queries @ keys.T * scaling, dim=-1).mean(0).tolist()
        now = self.held[-1].position
        for token, share in zip(self.held, given, strict=True):
            if now % HALF_LIFE == 0:
                token.score /= 2
            if share > 1 / SLOTS:
                vars(token)["hit"] = 1 + now
        return super().attend(queries, scaling)

    def evict(self) -> None:
        def worth(token: Held) -> tuple[float, int]:
            return vars(token).get("hit", 0) + token.score / (1 + token.score), token.position

        if len(self.held) > self.budget:
            self.held.remove(min(self.held[: len(self.held) - self.budget // 4], key=worth))


@pytest.fixture(autouse=True)
def one_line_more(monkeypatch: pytest.MonkeyPatch) -> None:
    states = (*state.STATES, state.State("last_hit", "", "int32"))
    for module in (state, arena, absorb, saved_cache):
        monkeypatch.setattr(module, "STATES", states)


def feed(model: Any, cache: H2OCache, tokens: list[list[int]], **step: Any) -> Tensor:
    with torch.no_grad():
        cache.prepare(Step(len(tokens[0]), **step))
        output = model(torch.tensor(tokens), past_key_values=cache)
    return torch.as_tensor(output.logits[:, -1])


def test_it_is_what_it_says_at_every_step() -> None:
    pair = tiny("llama", ATTENTION), tiny("llama", "h2o")
    caches = OracleCache(SLOTS, HalveHead), H2OCache(SLOTS, policy=HALVE)
    assert_same_steps(pair, caches, noise(200, seed=1))


def test_what_a_chunk_gives_is_what_single_steps_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes of 100 tokens; then what they got decides. A chunk of 13 ends where all is halved."""
    monkeypatch.setattr("h2o_chat.cache.attention.BLOCK", 7)
    model = tiny("llama", "h2o")
    caches = [H2OCache(100, policy=HALVE) for _ in range(3)]
    said = noise(100, seed=2)
    for cache, size in zip(caches, (1, 13, 100), strict=True):
        for start in range(0, 100, size):
            feed(model, cache, [said[start : start + size]])
        for layer, first in zip(cache.layers, caches[0].layers, strict=True):
            assert torch.equal(layer.slots.last_hit, first.slots.last_hit)
            torch.testing.assert_close(layer.slots.score, first.slots.score)
    for cache in caches:
        for token in noise(60, seed=3):
            feed(model, cache, [[token]])
    assert kept(caches[0]) == kept(caches[1]) == kept(caches[2])


def test_a_padded_row_and_a_row_that_moved_equal_the_row_alone() -> None:
    model = tiny("llama", "h2o")
    together, alone = H2OCache(SLOTS, policy=HALVE), H2OCache(SLOTS, policy=HALVE)
    rows = [noise(70, seed=4), [0] * 30 + noise(40, seed=5)]
    real = torch.arange(70) >= torch.tensor([[0], [30]])
    feed(model, together, rows, real=real)
    feed(model, alone, [rows[1][30:]])
    together.put_row(0, together.take_row(1))
    for token in noise(60, seed=6):
        logits = feed(model, together, [[token], [token]])
        same = feed(model, alone, [[token]]).expand(2, -1)  # in other columns: fp32 has other angles for them
        torch.testing.assert_close(logits, same, atol=1e-5, rtol=0)
    assert (together.current_arenas()[0].slots.last_hit == alone.current_arenas()[0].slots.last_hit).all()


def test_a_restored_cache_goes_on_and_the_bytes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama", "h2o")
    cache, other = H2OCache(SLOTS, policy=HALVE), H2OCache(SLOTS, policy=HALVE)
    feed(model, cache, [noise(90, seed=7)])
    other.restore(cache.snapshot())
    for token in noise(60, seed=8):
        assert torch.equal(feed(model, cache, [[token]]), feed(model, other, [[token]]))
    with_it = state.state_bytes(2)
    monkeypatch.undo()
    assert state.state_bytes(2) == with_it - 4


def test_a_state_that_nobody_looks_at_is_refused() -> None:
    """The native step asks `looks_at` alone whether it knows all that a policy ranks by."""
    with pytest.raises(UsageError, match="grows last_hit has to look at it"):
        replace(HALVE, looks_at=())


def test_it_is_saved_and_goes_on(
    shared_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(policies.POLICIES, "halve", HALVE)
    monkeypatch.setattr("h2o_chat.policies.references.POLICIES", policies.POLICIES)
    settings = Settings(model=str(shared_models / "stories260k"), budget=SLOTS, threads=1, seed=1)
    object.__setattr__(settings, "policy", "halve")  # which is no name that a flag takes
    loaded = load(settings, lambda *_: None)
    engine, other = Engine(loaded, settings), Engine(loaded, settings)
    list(engine.generate(noise(60, seed=9), Sampling(max_tokens=4, ignore_eos=True)))
    engine.save(tmp_path / "1.safetensors")
    other.load(tmp_path / "1.safetensors")
    more = Sampling(temperature=0, max_tokens=40, ignore_eos=True)
    said, again = ([e.id for e in one.generate([7], more) if isinstance(e, Token)] for one in (engine, other))
    assert said == again
    assert kept(engine.cache) == kept(other.cache)
