"""Policies that see the future: against slow loops, and kept out of everything that generates."""

from typing import Any

import pytest
import torch
from tiny_models import VOCAB, tiny
from torch import Tensor

from h2o_chat import H2OCache
from h2o_chat.base.config import OFFLINE, Settings
from h2o_chat.base.config import POLICIES as SETTABLE
from h2o_chat.base.errors import UsageError
from h2o_chat.lab.belady import BELADY, Foresight, attended, foresee, future_attention, next_use
from h2o_chat.policies.policies import POLICIES
from h2o_chat.policies.references import REFERENCES

LENGTH, BUDGET, HEADS = 90, 12, 2


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny("llama", "h2o")


@pytest.fixture(scope="module")
def ids() -> Tensor:
    return torch.randint(3, VOCAB, (2, LENGTH), generator=torch.Generator().manual_seed(4))


def test_the_record_is_what_eager_attention_gave(model: Any, ids: Tensor) -> None:
    """In blocks, 64 queries and 26."""
    with torch.no_grad():
        weights = tiny("llama", "eager")(ids, output_attentions=True).attentions
    for (given, groups), whole in zip(attended(model, ids, HEADS), weights, strict=True):
        assert groups == 2
        torch.testing.assert_close(given[:, 1], whole[:, 2:4].sum(1))
    assert model.config._attn_implementation == "h2o"


def test_tables_follow_their_definitions() -> None:
    given = torch.rand(6, 6, generator=torch.Generator().manual_seed(0)).tril()
    for query in range(6):
        for token in range(6):
            later = range(query + 1, 6)
            attention = sum(float(given[q, token]) for q in later)
            assert float(future_attention(given)[query, token]) == pytest.approx(attention, abs=1e-6)
            uses = [q for q in later if float(given[q, token]) * (q + 1) > 1]
            assert float(next_use(given, 1)[query, token]) == min([*uses, 6])


@pytest.mark.parametrize("policy", OFFLINE)
def test_the_least_needed_goes(model: Any, ids: Tensor, policy: str) -> None:
    """Step for step against a list per head that looks its tokens up in the table."""
    future = foresee(model, ids, HEADS, policy)
    cache = Foresight(BUDGET, policy=policy, future=future)
    heads = [(layer, row, head) for layer in range(3) for row in range(2) for head in range(HEADS)]
    held: dict[tuple[int, int, int], list[int]] = {where: [] for where in heads}
    for now in range(LENGTH):
        with torch.no_grad():
            model(ids[:, now : now + 1], past_key_values=cache)
        for layer, row, head in heads:
            mine = held[layer, row, head]
            mine.append(now)
            if len(mine) > BUDGET:
                worth = future[layer][row, head, now].tolist()
                mine.remove(min(mine, key=lambda position: (worth[position], position)))
            assert sorted(p for p in cache.kept(layer)[row, head].tolist() if p >= 0) == mine


@pytest.mark.parametrize("policy", OFFLINE)
def test_nothing_that_generates_takes_them(policy: str) -> None:
    with pytest.raises(UsageError, match="attended to"):
        H2OCache(BUDGET, policy=policy)
    with pytest.raises(UsageError, match="attended to"):
        Settings(policy=policy)  # type: ignore[arg-type]


def test_every_other_policy_can_be_set() -> None:
    assert set(SETTABLE) == {*POLICIES, *REFERENCES}
    assert set(OFFLINE) == {*BELADY}
    assert not set(SETTABLE) & set(OFFLINE)
