"""Properties of every policy, for any tokens, budget and way of feeding.

All in float64: one argmin flipped by rounding changes everything after it.
"""

from functools import cache as once
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sweep import sweep
from tiny_models import VOCAB, tiny
from torch import Tensor

from h2o_chat import H2OCache
from h2o_chat.cache.forward_call import Step
from h2o_chat.policies.references import named

POLICIES = ["h2o", "h2o-paper", "window", "streaming", "caote", "random", "last-query"]
SOME = ["h2o", "h2o-paper", "last-query", *sweep(*sorted({*POLICIES} - {"h2o", "h2o-paper", "last-query"}))]
"""One policy for each kind of score: with comparison, summed attention, the last query's."""
BUDGET, CHUNK = 20, 6
few = settings(
    max_examples=settings.default.max_examples // 4,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@once
def model(family: str = "llama") -> Any:
    return tiny(family, "h2o")


def tokens(count: int, seed: int = 0, rows: int = 1) -> Tensor:
    return torch.randint(3, VOCAB, (rows, count), generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def feed(cache: H2OCache, ids: Tensor, family: str = "llama", **inputs: Any) -> Tensor:
    """Logits of every column, [R, N, V]; all of it said to the model, however many columns at once."""
    cache.prepare(Step(ids.shape[1], prompt=True, real=_real(inputs, ids)))
    return model(family)(ids, past_key_values=cache, **inputs).logits


def _real(inputs: dict[str, Any], ids: Tensor) -> Tensor | None:
    """Which of the new columns are no padding."""
    mask = inputs.get("attention_mask")
    return None if mask is None else mask[:, -ids.shape[1] :].bool()


def feed_in_parts(cache: H2OCache, ids: Tensor, parts: list[int]) -> Tensor:
    return torch.cat([feed(cache, part) for part in ids.split(parts, 1)], 1)


def kept(cache: H2OCache, row: int = 0) -> list[list[list[int]]]:
    """Positions held by one row: [layers][H][...], oldest first."""
    return [
        [sorted(p for p in head if p >= 0) for head in cache.kept(layer)[row].tolist()]
        for layer in range(len(cache.layers))
    ]


def compositions(total: int) -> st.SearchStrategy[list[int]]:
    """Every way to feed `total` columns in calls of at least one."""
    return st.sets(st.integers(1, total - 1), max_size=6).map(
        lambda cuts: [b - a for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), total], strict=True)]
    )


# -- causality ------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["h2o", *sweep(*POLICIES[1:])])
@few
@given(first_change=st.integers(1, 69), chunk=st.integers(1, 40), seed=st.integers(0, 99))
def test_a_later_token_changes_nothing_before_it(
    policy: str, first_change: int, chunk: int, seed: int
) -> None:
    """In a chunked prompt with eviction: logits before the change, and what its chunks kept."""
    ids = tokens(70, seed)
    other = ids.clone()
    other[:, first_change:] = tokens(70 - first_change, seed + 1000)
    logits, changed = (feed(H2OCache(budget=BUDGET, policy=policy, chunk=chunk), i) for i in (ids, other))
    assert torch.equal(logits[:, :first_change], changed[:, :first_change])
    assert not torch.equal(logits[:, first_change:], changed[:, first_change:])


@pytest.mark.parametrize("policy", SOME)
def test_what_was_kept_at_t_does_not_depend_on_t_plus_1(policy: str) -> None:
    """One token at a time, the next one replaced: a row kept at t is the same row in both futures."""
    ids = tokens(60)
    cache = H2OCache(budget=BUDGET, policy=policy)
    for t in range(59):
        feed(cache, ids[:, t : t + 1])
        before, at_t = cache.snapshot(), kept(cache)
        for future in (ids[:, t + 1 : t + 2], (ids[:, t + 1 : t + 2] + 1) % VOCAB):
            feed(cache, future)
            for now, then in zip(kept(cache), at_t, strict=True):
                # At most one goes per step, and only the new one comes.
                assert all(len(set(b) - set(a)) <= 1 for a, b in zip(now, then, strict=True))
                assert all(set(a) - set(b) <= {t + 1} for a, b in zip(now, then, strict=True))
            cache.restore(before)
        assert kept(cache) == at_t


# -- chunks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["h2o", "full", *sweep(*POLICIES[1:])])
@few
@given(chunk=st.integers(1, 50), parts=compositions(48))
def test_chunks_agree_when_nothing_is_evicted(policy: str, chunk: int, parts: list[int]) -> None:
    ids = tokens(48)
    whole, cut = (H2OCache(budget=64, policy=policy, chunk=c) for c in (64, chunk))
    torch.testing.assert_close(feed_in_parts(cut, ids, parts), feed(whole, ids), atol=1e-9, rtol=0)
    assert kept(cut) == kept(whole) == [[list(range(48))] * 2] * 3
    # Their scores are equal, too: the first evictions agree.
    more = tokens(30, seed=9)
    torch.testing.assert_close(
        feed_in_parts(cut, more, [1] * 30), feed_in_parts(whole, more, [1] * 30), atol=1e-9, rtol=0
    )
    assert kept(cut) == kept(whole)


@pytest.mark.parametrize("policy", SOME)
def test_one_call_in_chunks_equals_one_call_a_chunk(policy: str) -> None:
    ids = tokens(80)
    one, many = (H2OCache(budget=BUDGET, policy=policy, chunk=c) for c in (8, 100))
    torch.testing.assert_close(feed(one, ids), feed_in_parts(many, ids, [8] * 10), atol=1e-9, rtol=0)
    assert kept(one) == kept(many)


@pytest.mark.parametrize("policy", SOME)
def test_chunks_of_one_are_single_steps(policy: str) -> None:
    ids = tokens(60)
    prompt, steps = (H2OCache(budget=BUDGET, policy=policy, chunk=1) for _ in range(2))
    torch.testing.assert_close(feed(prompt, ids), feed_in_parts(steps, ids, [1] * 60), atol=1e-9, rtol=0)
    assert kept(prompt) == kept(steps)


# -- rows -----------------------------------------------------------------------------------------


def left_padded(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Rows [1, n] of different lengths as (ids, mask), both [R, N]."""
    longest = max(row.shape[1] for row in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, longest - row.shape[1] :] = row
        mask[i, longest - row.shape[1] :] = 1
    return ids, mask


def positions(mask: Tensor, columns: int) -> Tensor:
    """The positions that `generate()` feeds: padding does not count."""
    return (mask.cumsum(-1) - 1).clamp_min(0)[:, -columns:]


@pytest.mark.parametrize("policy", ["h2o", *sweep("h2o-paper", "streaming")])
@pytest.mark.parametrize(
    ("family", "by_column"),
    [
        *((family, False) for family in ("llama", "opt", "gpt_neox", "gemma3_text")),
        *(("llama", True), ("gemma3_text", True), *sweep(("opt", True), ("gpt_neox", True))),
    ],
)
def test_a_padded_row_equals_the_row_alone(family: str, policy: str, by_column: bool) -> None:
    """Two turns, each padded on the left by another length, with eviction in both; one row ends early."""
    lengths = [(50, 30), (37, 45), (8, 9), (40, 0)]
    turns = [[tokens(n[t], seed=10 * r + t) for r, n in enumerate(lengths)] for t in range(2)]
    together = H2OCache(budget=BUDGET, policy=policy, chunk=CHUNK)
    mask = torch.zeros(len(lengths), 0, dtype=torch.long)
    logits = []
    for turn in turns:
        ids, real = left_padded(turn)
        widths = [1] * ids.shape[1] if by_column else [ids.shape[1]]
        for part, part_real in zip(ids.split(widths, 1), real.split(widths, 1), strict=True):
            mask = torch.cat((mask, part_real), 1)
            where = positions(mask, part.shape[1])
            logits.append(feed(together, part, family, attention_mask=mask, position_ids=where))
    all_logits = torch.cat(logits, 1)
    for row in range(len(lengths)):
        alone = H2OCache(budget=BUDGET, policy=policy, chunk=CHUNK)
        expected = [
            feed(alone, part, family)
            for turn in turns
            for part in turn[row].split(1 if by_column else 100, 1)
            if part.shape[1]
        ]
        assert kept(together, row) == kept(alone), f"row {row}"
        torch.testing.assert_close(
            all_logits[row][mask[row].bool()], torch.cat(expected, 1)[0], atol=1e-7, rtol=0
        )


# -- what every step keeps ------------------------------------------------------------------------


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """Every share of a budget that can work."""
    policy = draw(st.sampled_from(POLICIES))
    budget = draw(st.integers(10, 30))
    if named(policy).heavy:
        recent = draw(st.none() | st.integers(0, budget - 3))
        free = budget - (int(budget * named(policy).recent) if recent is None else recent)
        sinks = draw(st.integers(0, min(free // 2, free - 1)))
    else:
        sinks = draw(st.integers(0, budget - 1))
        recent = None
    return {
        "policy": policy,
        "budget": budget,
        "sinks": sinks,
        "recent": recent,
        "chunk": draw(st.integers(1, 40)),
    }


@few
@given(plan=plans(), parts=compositions(75), seed=st.integers(0, 99))
def test_budget_sinks_and_recent_hold_after_every_call(
    plan: dict[str, Any], parts: list[int], seed: int
) -> None:
    cache = H2OCache(**plan)
    budget, sinks, recent = plan["budget"], plan["sinks"], plan["recent"]
    heavy = named(plan["policy"]).heavy
    if recent is None:
        recent = int(budget * named(plan["policy"]).recent) if heavy else budget - sinks
    seen = 0
    for part in tokens(75, seed).split(parts, 1):
        feed(cache, part)
        seen += part.shape[1]
        assert cache.get_seq_length() == seen
        must = set(range(min(sinks, seen))) | set(range(max(0, seen - recent), seen))
        for head in (head for layer in kept(cache) for head in layer):
            assert len(head) == len(set(head)) == min(seen, budget)
            assert must <= set(head) <= set(range(seen))
            assert heavy or set(head) == must


@pytest.mark.parametrize("family", ["mistral", "gemma3_text"])
@few
@given(parts=compositions(75), chunk=st.integers(1, 40))
def test_the_budget_holds_with_sliding_windows(family: str, parts: list[int], chunk: int) -> None:
    cache = H2OCache(budget=BUDGET, chunk=chunk)
    for part in tokens(75).split(parts, 1):
        feed(cache, part, family)
        assert max(len(head) for layer in kept(cache) for head in layer) <= BUDGET


@pytest.mark.parametrize("chunk", [1, 7, 60])
@pytest.mark.parametrize(("policy", "decay_factor"), [("h2o-paper", 1.0), ("h2o", 1 - 1 / 64)])
def test_every_query_hands_out_one_per_head(policy: str, decay_factor: float, chunk: int) -> None:
    """The scores that a step adds sum to the number of query heads."""
    cache = H2OCache(budget=64, policy=policy, chunk=chunk)
    feed(cache, tokens(60, rows=2))
    expected = 2 * sum(decay_factor**age for age in range(60))  # two query heads per KV head
    for layer in cache.layers:
        total = layer.slots.score.sum((-1, -2))
        torch.testing.assert_close(total, torch.full_like(total, expected), atol=1e-9, rtol=0)


# -- snapshots ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy", ["h2o", "random", "full", *sweep(*sorted({*POLICIES} - {"h2o", "random"}))]
)
@few
@given(parts=compositions(40), again=compositions(50))
def test_a_restored_cache_continues_identically(policy: str, parts: list[int], again: list[int]) -> None:
    cache = H2OCache(budget=BUDGET, policy=policy, chunk=CHUNK)
    feed_in_parts(cache, tokens(40), parts)
    before, held = cache.snapshot(), kept(cache)
    first = feed_in_parts(cache, tokens(50, seed=1), again)
    for _ in range(2):  # a snapshot serves more than once
        cache.restore(before)
        assert (kept(cache), cache.get_seq_length()) == (held, 40)
        assert torch.equal(feed_in_parts(cache, tokens(50, seed=1), again), first)


@pytest.mark.parametrize("used", [False, True])
def test_a_snapshot_can_be_restored_into_another_cache(used: bool) -> None:
    cache, other = (H2OCache(budget=BUDGET, chunk=CHUNK) for _ in range(2))
    feed(cache, tokens(40))
    if used:
        feed(other, tokens(30, seed=2))
    other.restore(cache.snapshot())
    assert (kept(other), other.get_seq_length()) == (kept(cache), 40)
    assert torch.equal(feed(other, tokens(50, seed=1)), feed(cache, tokens(50, seed=1)))


def test_a_snapshot_of_an_unused_cache_empties_it_again() -> None:
    cache = H2OCache(budget=BUDGET)
    empty = cache.snapshot()
    first = feed(cache, tokens(30))
    cache.restore(empty)
    assert cache.get_seq_length() == 0
    assert torch.equal(feed(cache, tokens(30)), first)
