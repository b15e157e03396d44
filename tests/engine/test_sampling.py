"""The sampler chooses what transformers' own processors leave, as often as they say."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.generation.logits_process import TopPLogitsWarper

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import GenerationError
from h2o_chat.engine.sampling import Ascending, Sampler, TopPOnCpu, _processors

CPU = torch.device("cpu")


def logits_of(seed: int, vocabulary: int, scale: float) -> torch.Tensor:
    return torch.randn(1, vocabulary, generator=torch.Generator().manual_seed(seed)) * scale


@given(
    seed=st.integers(0, 2**32),
    vocabulary=st.sampled_from([1, 2, 7, 320, 49_152]),
    scale=st.sampled_from([0.01, 1.0, 4.0, 30.0]),
    top_p=st.sampled_from([1e-9, 0.05, 0.5, 0.9, 0.999, 1 - 1e-9]),
    cut=st.booleans(),
)
def test_top_p_is_that_of_transformers(
    seed: int, vocabulary: int, scale: float, top_p: float, cut: bool
) -> None:
    scores = logits_of(seed, vocabulary, scale)
    if cut:  # as top-k leaves them
        scores[scores < scores.median()] = -torch.inf
    distinct = scores[scores > -torch.inf].unique().numel() == (scores > -torch.inf).sum()
    ours, theirs = TopPOnCpu(top_p)(None, scores), TopPLogitsWarper(top_p)(None, scores)
    if not distinct:  # torch.sort lets any of equal ones go
        ours, theirs = ours.sort()[0], theirs.sort()[0]
    assert torch.equal(ours, theirs)


@given(seed=st.integers(0, 2**32), top_p=st.sampled_from([0.05, 0.5, 0.9]))
def test_of_equal_ones_as_many_stay_as_with_transformers(seed: int, top_p: float) -> None:
    scores = logits_of(seed, 320, 2.0).round()
    before = scores.clone()
    ours, theirs = TopPOnCpu(top_p)(None, scores), TopPLogitsWarper(top_p)(None, scores)
    assert torch.equal(ours.sort()[0], theirs.sort()[0])
    assert torch.equal(scores, before)
    kept = ours > -torch.inf
    least = scores[kept].min()
    among = kept[scores == least].tolist()
    assert among == sorted(among)  # the last ones


@pytest.mark.parametrize("vocabulary", [1, 60, 2000])
@pytest.mark.parametrize("rounded", [False, True], ids=["distinct", "with equal ones"])
def test_drawn_among_sorted_tokens_each_comes_as_often_as_after_transformers_cut(
    vocabulary: int, rounded: bool
) -> None:
    scores = logits_of(5, vocabulary, 2.0)
    scores = scores.round() if rounded else scores
    shares = TopPOnCpu(0.9)(None, scores).double().softmax(-1)[0]
    draws = 20_000
    by_score = Ascending(scores, 0.9)
    drawn = torch.tensor([by_score.at((number + 0.5) / draws) for number in range(draws)])
    came = torch.bincount(drawn, minlength=vocabulary)
    assert (came[shares == 0] == 0).all()
    assert (came - shares * draws).abs().max() < 1.1  # fp32 shares, and one draw at each end
    assert shares[by_score.at(0.0)] > 0
    assert shares[by_score.at(1.0 - 2**-53)] > 0


def test_other_cuts_are_transformers_own() -> None:
    sampling = Sampling(temperature=0.7, top_k=50, top_p=0.9, min_p=0.01, repetition_penalty=1.1)
    on_cpu, elsewhere = _processors(sampling, True), _processors(sampling, False)
    seen, scores = torch.tensor([[3, 5, 3]]), logits_of(1, 320, 3.0)
    ours, theirs = scores, scores
    for mine, other in zip(on_cpu, elsewhere, strict=True):
        ours, theirs = mine(seen, ours), other(seen, theirs)
    assert torch.equal(ours, theirs)
    assert 1 < int((ours > -torch.inf).sum()) < 50


def test_tokens_come_as_often_as_they_should() -> None:
    chances = torch.tensor([0.0, 0.5, 0.0, 0.3, 0.15, 0.05, 0.0])
    sampler, sampling = Sampler(7, CPU), Sampling(temperature=1.0)
    drawn = torch.tensor([sampler.choose(chances.log(), sampling) for _ in range(20_000)])
    shares = torch.bincount(drawn, minlength=7) / len(drawn)
    assert (shares[chances == 0] == 0).all()
    assert torch.allclose(shares, chances, atol=0.012)  # more than three deviations of each


def test_a_seed_repeats_and_the_penalty_looks_at_what_was_said() -> None:
    sampling = Sampling(temperature=0.8, top_p=0.95, repetition_penalty=1.3)
    logits = logits_of(3, 320, 2.0)[0]

    def draw(history: list[int]) -> list[int]:
        sampler = Sampler(11, CPU)
        sampler.history.extend(history)
        return [sampler.choose(logits, sampling) for _ in range(50)]

    assert draw([]) == draw([])
    likeliest = int(logits.argmax())
    assert draw([likeliest]).count(likeliest) < draw([]).count(likeliest)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.7, top_p=0.9)], ids=str)
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf], ids=str)
@pytest.mark.parametrize("at", [0, 5, 319])
def test_what_is_no_number_is_refused(sampling: Sampling, wrong: float, at: int) -> None:
    logits = logits_of(3, 320, 2.0)[0]
    logits[at] = wrong
    with pytest.raises(GenerationError, match="NaN or infinite"):
        Sampler(1, CPU).choose(logits, sampling)
    logits[at] = -torch.inf  # never chosen, and nothing wrong
    assert Sampler(1, CPU).choose(logits, sampling) != at
