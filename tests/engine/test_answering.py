"""What the tokens before an answer give to it: as much as in transformers, and looking changes nothing."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from sweep import sweep
from transformers import AutoModelForCausalLM

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import ModelError
from h2o_chat.engine.answering import STRETCH, AnswerAttention
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.source import FILE, Weights, read_weights
from h2o_chat.events.events import Token
from h2o_chat.native.loading import open_model

POCKET = Path(__file__).parents[2] / "assets" / "pocket"
LAYERS, HEADS = 6, 6
EACH = torch.eye(LAYERS * HEADS).view(-1, LAYERS, HEADS)
"""Every query head for itself."""
IDS = torch.randint(20, 900, (60,), generator=torch.Generator().manual_seed(3)).tolist()
ANSWER = 2 * STRETCH + 5


@pytest.fixture(scope="module")
def loaded() -> Any:
    return open_model(
        Settings(model=str(POCKET), threads=1, dtype="float32", quantize="none"), lambda *_: None
    )


def answered(engine: Engine, looking: AnswerAttention | None, tokens: int = ANSWER) -> list[int]:
    """Greedy tokens, each of them fed."""
    logits = engine.feed(IDS)
    if looking:
        looking.begin()
    answer: list[int] = []
    for _ in range(tokens):
        assert logits is not None
        answer.append(int(logits.argmax()))
        logits = engine.forward(answer[-1:])
        if looking:
            looking.fed()
    return answer


def plainly(answer: Sequence[int], forget: float) -> torch.Tensor:
    """The same of a model that keeps everything and tells its attention. [tokens before, L * heads]"""
    model = AutoModelForCausalLM.from_pretrained(POCKET, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        told = model(torch.tensor([[*IDS, *answer]]), output_attentions=True).attentions
    given = torch.cat([one[0, :, len(IDS) :, : len(IDS)] for one in told]).double()  # [L * heads, N, before]
    left = [forget ** (min(len(answer), STRETCH * (at // STRETCH + 1)) - 1 - at) for at in range(len(answer))]
    return torch.einsum("hnp,n->ph", given, torch.tensor(left, dtype=torch.float64)) / len(answer)


@pytest.mark.parametrize("policy", ["h2o", "full", *sweep("h2o-paper")])
def test_it_is_the_attention_of_the_answers_tokens(loaded: Any, policy: Any) -> None:
    engine = Engine(loaded, Settings(model=str(POCKET), policy=policy, budget=256, seed=0))
    looking = AnswerAttention(engine.cache)
    answer = answered(engine, looking)
    positions, given = looking.found(EACH)
    assert positions.tolist() == list(range(len(IDS)))
    assert looking.queries == ANSWER
    torch.testing.assert_close(given, plainly(answer, engine.cache.plan.policy.forget), atol=2e-4, rtol=0)


def test_weights_add_heads_up(loaded: Any) -> None:
    engine = Engine(loaded, Settings(model=str(POCKET), budget=256, seed=0))
    looking = AnswerAttention(engine.cache)
    answered(engine, looking)
    weights = torch.randn(2, LAYERS, HEADS, generator=torch.Generator().manual_seed(0))
    _, each = looking.found(EACH)
    _, both = looking.found(weights)
    torch.testing.assert_close(both, each @ weights.flatten(1).T.double(), atol=1e-5, rtol=0)


def test_a_token_that_goes_meanwhile_keeps_what_it_got(loaded: Any) -> None:
    """In slots that others take: nothing of those is counted, and what is left is as without them."""
    engine = Engine(loaded, Settings(model=str(POCKET), budget=48, seed=0))
    looking = AnswerAttention(engine.cache)
    answered(engine, looking, tokens=80)
    positions, given = looking.found(EACH)
    assert positions.max() < len(IDS), "what was held when the answer began, and nothing of the answer"
    assert bool((given >= -1e-6).all())
    assert bool((given.sum(0) <= 1).all()), "a head gives at most all of its attention, per token"


@pytest.mark.parametrize("policy", ["h2o", *sweep("h2o-paper")])
def test_looking_changes_nothing_of_what_is_kept(loaded: Any, policy: Any) -> None:
    settings = Settings(model=str(POCKET), policy=policy, budget=48, seed=0, events_every=16)
    sampling = Sampling(temperature=0.0, max_tokens=90, ignore_eos=True)
    weights = Weights([[0.5] * HEADS] * LAYERS)
    both = [Engine(loaded, settings, each) for each in (weights, None)]
    tokens = [[one.id for one in engine.generate(IDS, sampling) if isinstance(one, Token)] for engine in both]
    assert tokens[0] == tokens[1]
    rested = both[0].rested()
    assert rested is not None
    assert len(rested.positions) == len(rested.weights) > 20
    assert both[1].rested() is None
    parts = [[arena.slots.states for arena in engine.cache.arenas] for engine in both]
    for one, other in zip(*parts, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("policy", "known"), [("lru", False), ("lfu", False), ("snapkv", True), ("window", True)]
)
def test_where_scores_are_no_attention_it_is_not_known(loaded: Any, policy: Any, known: bool) -> None:
    """They say when a token was used, or how often."""
    settings = Settings(model=str(POCKET), policy=policy, budget=48, seed=0)
    engine = Engine(loaded, settings, Weights([[0.5] * HEADS] * LAYERS))
    answer = engine.generate(IDS, Sampling(temperature=0.0, max_tokens=40, ignore_eos=True))
    assert sum(isinstance(event, Token) for event in answer) == 40
    assert (engine.rested() is not None) == known


def test_it_is_off_where_nobody_looks_and_without_weights(loaded: Any) -> None:
    weights = Weights([[0.5] * HEADS] * LAYERS)
    settings = Settings(model=str(POCKET), budget=48, seed=0)
    assert Engine(loaded, settings, weights).weighs
    assert not Engine(loaded, settings).weighs
    assert not Engine(loaded, Settings(model=str(POCKET), events_every=0), weights).weighs
    assert Engine(loaded, settings, weights).remade(settings).weighs


def test_weights_of_another_model_and_damaged_ones_are_refused(loaded: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"5 layers of \[6\] query heads, the model has 6 of 6"):
        Engine(loaded, Settings(model=str(POCKET)), Weights([[0.5] * HEADS] * 5))
    assert read_weights(tmp_path) is None
    huge = f'{{"heads": [[1{"0" * 400}]]}}'
    for damaged in (
        huge,
        " " * (5 << 20),
        "",
        "[]",
        '{"heads": 3}',
        '{"heads": [[NaN]]}',
        '{"heads": [[1e39]]}',  # infinite in fp32: all that an answer rests on was
        '{"heads": [["x"]]}',
        "[" * 100_000,
    ):
        (tmp_path / FILE).write_text(damaged)
        with pytest.raises(ModelError, match="holds no weights"):
            read_weights(tmp_path)


def test_pocket_has_weights_of_its_own() -> None:
    weights = read_weights(POCKET)
    assert weights is not None
    assert [len(layer) for layer in weights.heads] == [HEADS] * LAYERS
    assert "train_source" in json.loads((POCKET / FILE).read_text())["made"]


def test_the_first_token_is_told_before_anybody_looks(loaded: Any) -> None:
    """A look has it chosen who of the prompt stays. An answer that was stopped before it rests on nothing."""
    engine = Engine(loaded, Settings(budget=48, threads=1, events_every=16, seed=1), read_weights(POCKET))
    for event in engine.generate(IDS, Sampling(max_tokens=5, ignore_eos=True)):
        if isinstance(event, Token):
            break
    assert any(arena.waiting for arena in engine.cache.arenas_in_step)
    list(engine.generate(IDS[:5], Sampling(max_tokens=5, ignore_eos=True)))
    assert engine.rested() is not None
    heard = list[Any]()
    for event in engine.generate(IDS[:5], Sampling(max_tokens=5), cancel=lambda: bool(heard)):
        heard.append(event)
    assert [one.event for one in heard if one.event != "cache"] == ["prompt", "turn"]
    assert engine.rested() is None
