"""The choice that a GPU makes in one captured graph, beside transformers' own processors.

Without a GPU the captured work is run as it is. Some tests hold the choice on a CPU to the same.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers.generation import logits_process as theirs

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import GenerationError
from h2o_chat.engine.device_choice import HISTORY_TOKENS, MOST_CHANGES, DeviceChoice, changed
from h2o_chat.engine.sampling import Sampler, cut_by_top_p

CPU = torch.device("cpu")


def on_device(seed: int, device: torch.device = CPU) -> Sampler:
    """A sampler that does as on a GPU, where it runs."""
    sampler = Sampler(seed, device)
    sampler.on_cpu = False
    return sampler


@pytest.fixture(params=["on a CPU", "as on a GPU", pytest.param("on a GPU", marks=pytest.mark.gpu)])
def choose(request: pytest.FixtureRequest) -> Callable[[torch.Tensor, Sampling], int]:
    """Chooses from logits [V], in each way that the program has."""
    device = torch.device("cuda" if request.param == "on a GPU" else "cpu")
    sampler = Sampler(5, device) if request.param == "on a CPU" else on_device(5, device)
    return lambda logits, sampling: sampler.choose(logits.to(device), sampling)


def logits_of(seed: int, vocabulary: int, scale: float) -> torch.Tensor:
    return torch.randn(vocabulary, generator=torch.Generator().manual_seed(seed)) * scale


def logits_in(vocabularies: list[int], scales: list[float]) -> st.SearchStrategy[torch.Tensor]:
    return st.builds(logits_of, st.integers(0, 2**32), st.sampled_from(vocabularies), st.sampled_from(scales))


def cut(scores: torch.Tensor, sampling: Sampling, history: list[int]) -> torch.Tensor:
    """Scores [V] after transformers' processors; of equal ones at the border the last ids stay."""
    penalty, warm = sampling.repetition_penalty, sampling.temperature
    before = [theirs.RepetitionPenaltyLogitsProcessor(penalty), theirs.TemperatureLogitsWarper(warm)]
    before += [theirs.TopKLogitsWarper(sampling.top_k)] if sampling.top_k else []
    scores = theirs.LogitsProcessorList(before)(torch.tensor([history]), scores[None])
    scores = cut_by_top_p(scores, sampling.top_p) if sampling.top_p < 1 else scores
    return (theirs.MinPLogitsWarper(sampling.min_p)(None, scores) if sampling.min_p else scores)[0]


def drawn_from(kept: torch.Tensor, generator: torch.Generator) -> int:
    """One random number for scores [V]; shares are added from the smallest on."""
    order = kept.argsort(stable=True)
    shares = kept.double().softmax(-1)[order].cumsum(-1)
    drawn = torch.rand((), dtype=torch.float64, generator=generator) * shares[-1]
    return int(order[int((shares <= drawn).sum())])


@given(
    logits=logits_in([7, 320, 49_152], [0.5, 3.0, 10.0]),
    sampling=st.builds(
        Sampling,
        temperature=st.sampled_from([0.3, 1.0, 1.5]),
        top_p=st.sampled_from([1e-9, 0.3, 0.5, 0.9, 0.99, 1.0]),
        top_k=st.sampled_from([0, 1, 50, 400]),
        min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
        repetition_penalty=st.sampled_from([1.0, 1.3]),
    ),
    seed=st.integers(0, 2**32),
    rounded=st.booleans(),
)
def test_token_for_token_what_transformers_processors_keep(
    logits: torch.Tensor, sampling: Sampling, seed: int, rounded: bool
) -> None:
    history, top_p = [5, 3, 5, 6], sampling.top_p
    logits = logits.round() if rounded else logits
    sampler, generator = on_device(seed), torch.Generator().manual_seed(seed)
    sampler.history.extend(history)
    kept = cut(logits, sampling, history)
    # Transformers adds shares in fp32. Where its rounding may move top-p's border, either is right.
    ordered = cut(logits, replace(sampling, top_p=1.0, min_p=0.0), history).sort()[0]
    sums, rounded_sums = ordered.double().softmax(-1).cumsum(-1), ordered.softmax(-1).cumsum(-1)
    error = max(2e-7, float((sums - rounded_sums).abs().max()))
    assume(((sums - (1 - top_p)).abs() > error).all() or top_p == 1)
    for _ in range(5):
        assert sampler.choose(logits, sampling) == drawn_from(kept, generator)


@pytest.mark.parametrize(
    ("how", "rounded"),
    [
        ({}, False),
        ({"min_p": 0.02}, False),
        ({"top_p": 0.3}, True),
        ({"top_p": 0.9}, False),
        ({"top_p": 0.6, "min_p": 0.02, "top_k": 12}, True),
    ],
    ids=str,
)
def test_each_token_comes_as_often_as_it_should(
    how: dict[str, Any], rounded: bool, choose: Callable[[torch.Tensor, Sampling], int]
) -> None:
    logits, sampling, draws = logits_of(5, 60, 2.0), Sampling(temperature=1.0, **how), 8_000
    logits = logits.round() if rounded else logits
    shares = cut(logits, sampling, []).double().softmax(-1)
    drawn = torch.tensor([choose(logits, sampling) for _ in range(draws)])
    came = torch.bincount(drawn, minlength=60)
    assert (came[shares == 0] == 0).all()
    deviation = (shares * (1 - shares) / draws).sqrt()
    assert ((came / draws - shares).abs() <= 4 * deviation).all()


@pytest.mark.gpu
def test_captured_it_chooses_as_it_does_on_a_cpu() -> None:
    """Equal logits and random numbers give equal tokens, however they are asked for."""
    device = torch.device("cuda")
    here, there = on_device(3), on_device(3, device)
    for number in range(200):
        logits = logits_of(number, 49_152, 3.0)
        sampling = Sampling(
            (0.0, 0.3, 0.7, 1.0)[number % 4],
            (0.5, 0.9, 1.0)[number % 3],
            (0, 40)[number % 2],
            (0.0, 0.05)[number // 2 % 2],
            (1.0, 1.2)[number // 4 % 2],
        )
        changes = {at * 7: -torch.inf for at in range(number)}
        chosen = [
            one.choose(logits.to(where), sampling, changes) for one, where in ((here, CPU), (there, device))
        ]
        assert chosen[0] == chosen[1], number
        for one in (here, there):
            one.history.append(chosen[0])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("many", [3, MOST_CHANGES, MOST_CHANGES + 1])
def test_what_is_barred_never_comes_and_what_is_wished_does(temperature: float, many: int) -> None:
    logits, sampler, sampling = logits_of(1, 2_000, 2.0), on_device(1), Sampling(temperature)
    barred = logits.argsort(descending=True)[:many].tolist()
    changes = dict.fromkeys(barred, -torch.inf)
    came = {sampler.choose(logits, sampling, changes) for _ in range(50)}
    assert not came & set(barred)
    assert sampler.choose(logits, sampling, changes | {7: 100.0}) == 7 or 7 in barred
    assert sampler.choose(logits, sampling, {7: 100.0}) == 7
    expected = {int(logits.argmax())} if not temperature else {*range(2_000)}
    assert sampler.choose(logits, sampling) in expected, "nothing is left of the changes"


def test_the_penalty_looks_at_no_more_than_the_history() -> None:
    """A full history, a short one and none: token 0, which stands where there is room, has none."""
    sampling, logits = Sampling(repetition_penalty=10.0), torch.tensor([5.0, 4.0, 3.0])
    sampler = on_device(1)
    assert sampler.choose(logits, sampling) == 0
    sampler.history.extend([1])
    assert sampler.choose(logits, sampling) == 0
    sampler.history.extend([0])
    assert sampler.choose(logits, sampling) == 2
    sampler.history.extend([2] * HISTORY_TOKENS)
    assert sampler.choose(logits, sampling) == 0


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(0.7, 0.9), Sampling(repetition_penalty=1.1)], ids=str
)
@pytest.mark.parametrize("wrong", [torch.nan, -torch.nan, torch.inf], ids=str)
@pytest.mark.parametrize("at", [0, 5, 49_151])
def test_what_is_no_number_is_refused(
    sampling: Sampling, wrong: float, at: int, choose: Callable[[torch.Tensor, Sampling], int]
) -> None:
    logits = logits_of(3, 49_152, 2.0)
    logits[at] = wrong
    with pytest.raises(GenerationError, match="NaN or infinite"):
        choose(logits, sampling)
    logits[at] = -torch.inf  # never chosen, and nothing wrong
    assert choose(logits, sampling) != at
    with pytest.raises(GenerationError, match="NaN or infinite"):
        choose(torch.full((49_152,), -torch.inf), sampling)


@pytest.mark.parametrize("greedy", [False, True])
def test_a_choice_that_is_warm_chooses_as_any_other(greedy: bool, device: str) -> None:
    choice, logits = DeviceChoice(torch.device(device), 50), logits_of(4, 50, 2.0).to(device)
    choice.warm_up()
    drawn = torch.tensor(0.999_999, dtype=torch.float64)
    assert choice.choose(logits, Sampling(0.0 if greedy else 0.01), {}, [], drawn) == int(logits.argmax())


def test_changes_are_added() -> None:
    logits = torch.zeros(4, dtype=torch.bfloat16)
    assert changed(logits, {1: 0.001, 3: -torch.inf}).tolist() == pytest.approx([0, 0.001, 0, -torch.inf])
