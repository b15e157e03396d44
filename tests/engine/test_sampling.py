"""The sampler chooses what transformers' own processors leave, as often as they say."""

from dataclasses import replace

import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from test_device_choice import CPU, cut, logits_in, logits_of
from transformers.generation import logits_process as theirs
from transformers.generation.logits_process import TopPLogitsWarper

from h2o_chat.base.config import Sampling
from h2o_chat.engine.sampling import NEAR, Sampler, _cut, cut_by_min_p, cut_by_top_p, is_kept, scaled

SCORES = logits_in([1, 2, 7, 320, 49_152], [0.01, 1.0, 4.0, 30.0]).map(lambda logits: logits[None])


@given(
    scores=SCORES,
    top_p=st.sampled_from([1e-9, 0.05, 0.5, 0.9, 0.999, 1 - 1e-9]),
    rounded=st.booleans(),
    by_top_k=st.booleans(),
)
def test_top_p_is_that_of_transformers(
    scores: torch.Tensor, top_p: float, rounded: bool, by_top_k: bool
) -> None:
    scores = scores.round() if rounded else scores
    if by_top_k:  # as it leaves them
        scores[scores < scores.median()] = -torch.inf
    before, distinct = scores.clone(), scores[scores > -torch.inf].unique()
    ours, theirs = cut_by_top_p(scores, top_p), TopPLogitsWarper(top_p)(None, scores)
    assert torch.equal(scores, before)
    kept = ours > -torch.inf
    among = kept[scores == scores[kept].min()].tolist()
    assert among == sorted(among), "of equal ones the last stay"
    if distinct.numel() < (scores > -torch.inf).sum():  # torch.sort lets any of equal ones go
        ours, theirs = ours.sort()[0], theirs.sort()[0]
    assert torch.equal(ours, theirs)


@given(
    scores=SCORES,
    min_p=st.sampled_from([1e-9, 0.05, 0.3, 1.0]),
    top_k=st.sampled_from([0, 1, 20, 400]),
    top_p=st.sampled_from([0.5, 0.9, 1.0]),
    rounded=st.booleans(),
)
def test_all_cuts_are_those_of_transformers(
    scores: torch.Tensor, min_p: float, top_k: int, top_p: float, rounded: bool
) -> None:
    scores = scores.round() if rounded else scores
    before = scores.clone()
    assert torch.equal(cut_by_min_p(scores, min_p), theirs.MinPLogitsWarper(min_p)(None, scores))
    sampling = Sampling(temperature=1.0, top_k=top_k, top_p=top_p, min_p=min_p)
    expected = theirs.TopKLogitsWarper(top_k)(None, scores) if top_k else scores
    expected = cut_by_top_p(expected, top_p) if top_p < 1 else expected
    assert torch.equal(_cut(scores, sampling), theirs.MinPLogitsWarper(min_p)(None, expected))
    assert torch.equal(scores, before)


@given(
    seed=st.integers(0, 2**32),
    penalty=st.floats(0.01, 100),
    temperature=st.floats(0.001, 100),
    seen=st.lists(st.integers(0, 319), max_size=1024),
)
def test_penalty_and_temperature_are_those_of_transformers(
    seed: int, penalty: float, temperature: float, seen: list[int]
) -> None:
    scores, ids = logits_of(seed, 320, 3.0)[None], torch.tensor([seen], dtype=torch.int64)
    before = scores.clone()
    warm = theirs.TemperatureLogitsWarper(temperature)
    punished = theirs.RepetitionPenaltyLogitsProcessor(penalty)(ids, scores)
    assert torch.equal(scaled(scores, ids[0].numpy(), penalty, temperature), warm(ids, punished))
    assert torch.equal(scaled(scores, ids[0, :0].numpy(), 1.0, temperature), warm(ids, scores))
    assert torch.equal(scores, before)


@given(
    scores=SCORES,
    top_p=st.sampled_from([0.5, 0.9, 0.999, 1 - 1e-9]),
    rounded=st.booleans(),
)
@example(scores=logits_of(32, 262_144, 0.01)[None], top_p=0.5, rounded=False)  # its sum is the smaller one
@example(scores=logits_of(21, 262_144, 0.01)[None], top_p=0.9, rounded=False)
def test_what_is_surely_kept_or_cut_is_so_by_transformers(
    scores: torch.Tensor, top_p: float, rounded: bool
) -> None:
    """The last tokens that are cut off, the first that are kept, and some others."""
    scores = scores.round() if rounded else scores
    kept = TopPLogitsWarper(top_p)(None, scores)[0]
    if rounded:  # which of equal ones transformers keeps is chance: the last ones do as well
        kept = cut_by_top_p(scores, top_p)[0]
    shares, order = scores.softmax(-1)[0].numpy(), scores[0].argsort(stable=True)
    gone = int((kept == -torch.inf).sum())
    sampling = Sampling(temperature=1.0, top_p=top_p)
    tokens = order[max(0, gone - 20) : gone + 20].tolist()
    said = {token: is_kept(token, shares, sampling) for token in tokens}
    assert not [token for token, it_is in said.items() if it_is is True and kept[token] == -torch.inf]
    assert not [token for token, it_is in said.items() if it_is is False and kept[token] > -torch.inf]


@pytest.mark.parametrize("min_p", [0.0, 0.05])
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_it_is_mostly_certain(scale: float, min_p: float) -> None:
    """Without it every token would be sorted for."""
    shares = logits_of(3, 49_152, scale).softmax(-1)
    drawn = torch.multinomial(shares, 500, replacement=True)
    sampling = Sampling(temperature=1.0, top_p=0.9, min_p=min_p)
    said = [is_kept(token, shares.numpy(), sampling) for token in drawn.tolist()]
    assert said.count(None) < 20
    assert said.count(False) > 20


def plainly(scores: torch.Tensor, generator: torch.Generator) -> int:
    """One random number for scores [1, V]; shares are added up in the order of the vocabulary."""
    shares = scores.softmax(-1)[0].double().cumsum(-1)
    drawn = torch.rand((), dtype=torch.float64, generator=generator) * shares[-1]
    return int((shares <= drawn).sum())


@given(
    logits=logits_in([320, 49_152], [0.5, 3.0, 10.0]),
    sampling=st.builds(
        Sampling,
        temperature=st.sampled_from([0.3, 1.0, 1.5]),
        top_p=st.sampled_from([0.3, 0.5, 0.9, 0.99, 1.0]),
        top_k=st.sampled_from([0, 50, 400]),
        min_p=st.sampled_from([0.0, 0.05, 0.5]),
        repetition_penalty=st.sampled_from([1.0, 1.3]),
    ),
    seed=st.integers(0, 2**32),
)
def test_token_for_token_what_transformers_processors_keep(
    logits: torch.Tensor, sampling: Sampling, seed: int
) -> None:
    """From a half on one is drawn before top-p, until that keeps it. Else one is drawn after it."""
    history, min_p = [5, 9, 5, 200], sampling.min_p
    sampler, generator = Sampler(seed, CPU), torch.Generator().manual_seed(seed)
    sampler.history.extend(history)
    scores, kept = (cut(logits, one, history)[None] for one in (replace(sampling, top_p=1.0), sampling))
    if min_p:
        # One that rounding puts to either side of min-p may be drawn, and is drawn again: other numbers then.
        shares = cut(logits, replace(sampling, top_p=1.0, min_p=0.0), history).softmax(-1)
        assume(float((shares / shares.max() / min_p - 1).abs().min()) > NEAR)
    for _ in range(5):
        token = plainly(scores if sampling.top_p >= 0.5 else kept, generator)
        while kept[0, token] == -torch.inf:
            token = plainly(scores, generator)
        assert sampler.choose(logits, sampling) == token
