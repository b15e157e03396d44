"""The frame that all policies share, and the shares of a budget."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from h2o_chat.base.config import POLICY_NAMES
from h2o_chat.base.errors import BudgetError, UsageError
from h2o_chat.policies.eviction_order import checked_priority, lowest, protected_priority
from h2o_chat.policies.policies import POLICIES, Policy, Slots, output_change_by_head
from h2o_chat.policies.references import named, output_change
from h2o_chat.policies.shares import divide

SLOTS = st.lists(st.tuples(st.integers(-1, 50), st.integers(0, 3)), min_size=1, max_size=12)


def tensors(slots: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    """(priority, positions), [1, 1, S]; few distinct priorities, so that ties are common."""
    positions = torch.tensor([[[position for position, _ in slots]]], dtype=torch.int32)
    priority = torch.tensor([[[float(value) for _, value in slots]]])
    return priority.masked_fill(positions < 0, -torch.inf), positions


@given(SLOTS)
def test_lowest_drops_the_oldest_of_the_lowest(slots: list[tuple[int, int]]) -> None:
    priority, positions = tensors(slots)
    chosen = int(lowest(priority, positions, 1))
    pairs = list(zip(priority.flatten().tolist(), positions.flatten().tolist(), strict=True))
    assert pairs[chosen] == min(pairs)


@given(SLOTS, st.data())
def test_many_at_once_are_those_that_go_one_after_another(
    slots: list[tuple[int, int]], data: st.DataObject
) -> None:
    distinct = list({position: (position, value) for position, value in slots}.values())
    priority, positions = tensors(distinct)
    keep = data.draw(st.integers(1, len(distinct)))
    left = list(range(len(distinct)))
    while len(left) > keep:
        del left[int(lowest(priority[..., left], positions[..., left], 1))]
    going = lowest(priority, positions, len(distinct) - keep).flatten().tolist()
    assert sorted({*range(len(distinct))} - {*going}) == left


def test_output_change_follows_its_formula() -> None:
    torch.manual_seed(0)
    score, values = torch.rand(2, 3, 5, dtype=torch.float64), torch.randn(2, 3, 5, 4, dtype=torch.float64)
    apart = torch.stack((score, score.flip(-1)), -1)  # two query heads
    change = output_change(Slots(score=score.unsqueeze(-1), values=values))
    by_head = output_change_by_head(Slots(score=apart, values=values))
    torch.testing.assert_close(by_head[..., 0], change)
    for row in range(2):
        for head in range(3):
            share = score[row, head] / score[row, head].sum()
            output = sum(share[i] * values[row, head, i] for i in range(5))
            for i in range(5):
                without = sum(share[j] * values[row, head, j] for j in range(5) if j != i) / (1 - share[i])
                # The formula is exactly how far the output moves when i is left out.
                torch.testing.assert_close(change[row, head, i], (output - without).norm())


def test_output_change_of_a_lonely_token_is_finite() -> None:
    alone = Slots(
        positions=torch.zeros(1, 1, 2, dtype=torch.int32),
        score=torch.tensor([[[[1.0], [0.0]]]]),
        values=torch.ones(1, 1, 2, 3),
        prompt=torch.zeros(1, 1, 2, dtype=torch.bool),
    )
    assert bool(output_change(alone).isfinite().all())
    assert bool(POLICIES["h2o"].priority(alone).isfinite().all())


def test_the_shared_rules_order_empty_unseen_heavy_and_safe() -> None:
    #                            empty  unseen  heavy  protected  recent
    positions = torch.tensor([[[-1, 3, 10, 11, 20]]], dtype=torch.int32)
    protected = torch.tensor([[[False, True, False, True, False]]])
    slots = Slots(positions=positions, score=torch.full((1, 1, 5, 1), 0.5), protected=protected)
    priority = checked_priority(POLICIES["h2o-paper"], slots)
    found = protected_priority(priority, slots, torch.tensor(15), torch.tensor(5))
    infinite = float("inf")
    assert found.flatten().tolist() == [-infinite, -infinite, 0.5, infinite, infinite]


@pytest.mark.parametrize("name", [name for name in POLICY_NAMES if name != "full"])
@given(
    budget=st.integers(1, 200),
    sinks=st.none() | st.integers(0, 60),
    recent=st.none() | st.integers(0, 200),
)
def test_a_budget_is_divided_or_refused_with_the_smallest_that_works(
    name: str, budget: int, sinks: int | None, recent: int | None
) -> None:
    try:
        shares = divide(named(name), budget, sinks, recent)
    except BudgetError as error:
        smallest = int(error.hint.rstrip(".").rpartition(" ")[2])
        assert smallest != budget
        assert divide(named(name), smallest, sinks, recent).budget == smallest
        if smallest > 1:
            with pytest.raises(BudgetError, match=str(smallest - 1)):
                divide(named(name), smallest - 1, sinks, recent)
        return
    heavy = shares.budget - shares.sinks - shares.recent
    assert heavy >= (1 if named(name).heavy else 0)
    assert shares.most_protected + shares.recent <= shares.budget


def test_the_smallest_budget_is_found_at_once() -> None:
    """It was looked for by trying all, for minutes."""
    with pytest.raises(BudgetError, match="cannot hold 100000000 sinks") as caught:
        divide(POLICIES["h2o"], 64, sinks=100_000_000)
    smallest = int(caught.value.hint.split()[-1].rstrip("."))
    divide(POLICIES["h2o"], smallest, sinks=100_000_000)
    assert smallest <= 250_000_000


def test_what_a_policy_has_no_number_for_goes_and_what_is_safe_stays() -> None:
    positions = torch.arange(6).view(1, 1, 1, 6)
    numbers = torch.tensor([torch.nan, torch.nan, 2.0, torch.inf, 1.0, 0.0]).view(1, 1, 1, 6)
    slots = Slots(positions=positions, score=numbers.unsqueeze(-1), protected=positions == 0)
    none = torch.zeros(1, 1, 1, 1, dtype=torch.long)
    policy = Policy(lambda _: numbers, decay_factor=1.0, sinks=1, heavy=True)
    ranked = protected_priority(checked_priority(policy, slots), slots, torch.tensor([[[5]]]), none)
    assert set(lowest(ranked, positions, 4).flatten().tolist()) == {1, 2, 3, 4}
    whole = Policy(lambda some: some.positions, decay_factor=1.0, sinks=1, heavy=True)
    with pytest.raises(UsageError, match=r"ranks by torch\.int64"):
        protected_priority(checked_priority(whole, slots), slots, torch.tensor([[[5]]]), none)
