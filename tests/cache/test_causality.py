"""Properties of every policy, for any tokens, budget and way of feeding.

All in float64: one argmin flipped by rounding changes everything after it.
"""

from functools import cache as once
from typing import Any

import pytest
import torch
from feeding import ask, kept_by, left_padded, positions, tokens
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sweep import sweep
from tiny_models import tiny
from torch import Tensor

from h2o_chat import H2OCache
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


def feed(cache: H2OCache, ids: Tensor, family: str = "llama", **inputs: Any) -> Tensor:
    return ask(model(family), cache, ids, **inputs)


def feed_in_parts(cache: H2OCache, ids: Tensor, parts: list[int]) -> Tensor:
    return torch.cat([feed(cache, part) for part in ids.split(parts, 1)], 1)


def compositions(total: int) -> st.SearchStrategy[list[int]]:
    """Every way to feed `total` columns in calls of at least one."""
    return st.sets(st.integers(1, total - 1), max_size=6).map(
        lambda cuts: [b - a for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), total], strict=True)]
    )


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


@pytest.mark.parametrize("policy", ["h2o", "full", "lru", *sweep(*POLICIES[1:])])
@few
@given(chunk=st.integers(1, 50), parts=compositions(48))
def test_chunks_agree_when_nothing_is_evicted(policy: str, chunk: int, parts: list[int]) -> None:
    ids = tokens(48)
    whole, cut = (H2OCache(budget=64, policy=policy, chunk=c) for c in (64, chunk))
    torch.testing.assert_close(feed_in_parts(cut, ids, parts), feed(whole, ids), atol=1e-9, rtol=0)
    assert kept_by(cut) == kept_by(whole) == [[list(range(48))] * 2] * 3
    # Their scores are equal, too: the first evictions agree.
    more = tokens(30, seed=9)
    torch.testing.assert_close(
        feed_in_parts(cut, more, [1] * 30), feed_in_parts(whole, more, [1] * 30), atol=1e-9, rtol=0
    )
    assert kept_by(cut) == kept_by(whole)


@pytest.mark.parametrize("policy", SOME)
@pytest.mark.parametrize("chunk", [1, 8])
def test_a_call_in_chunks_equals_a_call_for_each_chunk(policy: str, chunk: int) -> None:
    """Chunks of one are single steps."""
    ids = tokens(80)
    one, many = (H2OCache(budget=BUDGET, policy=policy, chunk=c) for c in (chunk, 100))
    parts = [chunk] * (80 // chunk)
    torch.testing.assert_close(feed(one, ids), feed_in_parts(many, ids, parts), atol=1e-9, rtol=0)
    assert kept_by(one) == kept_by(many)


@pytest.mark.parametrize("policy", ["h2o", *sweep("h2o-paper", "streaming")])
@pytest.mark.parametrize(
    ("family", "by_column", "prefill"),
    [
        *((family, False, "chunked") for family in ("llama", "opt", "gpt_neox", "gemma3_text")),
        *(("llama", False, "full"), ("llama", True, "chunked"), ("gemma3_text", True, "chunked")),
        *sweep(("opt", True, "chunked"), ("gpt_neox", True, "chunked")),
    ],
)
def test_a_padded_row_equals_the_row_alone(family: str, by_column: bool, prefill: Any, policy: str) -> None:
    """Two turns, each padded on the left by another length, with eviction in both; one row ends early."""
    lengths = [(50, 30), (37, 45), (8, 9), (40, 0)]
    turns = [[tokens(n[t], seed=10 * r + t) for r, n in enumerate(lengths)] for t in range(2)]
    together, *each = (
        H2OCache(budget=BUDGET, policy=policy, chunk=CHUNK, prefill=prefill) for _ in range(1 + len(lengths))
    )
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
    for row, alone in enumerate(each):
        expected = [
            feed(alone, part, family)
            for turn in turns
            for part in turn[row].split(1 if by_column else 100, 1)
            if part.shape[1]
        ]
        assert kept_by(together, row) == kept_by(alone), f"row {row}"
        assert max(len(head) for layer in kept_by(alone) for head in layer) <= BUDGET
        torch.testing.assert_close(
            all_logits[row][mask[row].bool()], torch.cat(expected, 1)[0], atol=1e-7, rtol=0
        )


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
        for head in (head for layer in kept_by(cache) for head in layer):
            assert len(head) == len(set(head)) == min(seen, budget)
            assert must <= set(head) <= set(range(seen))
            assert heavy or set(head) == must


@pytest.mark.parametrize(
    "policy", ["h2o", "random", "full", *sweep(*sorted({*POLICIES} - {"h2o", "random"}))]
)
@few
@given(parts=compositions(40), again=compositions(50))
def test_a_restored_cache_continues_identically(policy: str, parts: list[int], again: list[int]) -> None:
    cache = H2OCache(budget=BUDGET, policy=policy, chunk=CHUNK)
    empty = cache.snapshot()
    feed(cache, tokens(20))
    cache.restore(empty)  # as new
    feed_in_parts(cache, tokens(40), parts)
    before, held = cache.snapshot(), kept_by(cache)
    first = feed_in_parts(cache, tokens(50, seed=1), again)
    for _ in range(2):  # a snapshot serves more than once
        cache.restore(before)
        assert (kept_by(cache), cache.get_seq_length()) == (held, 40)
        assert torch.equal(feed_in_parts(cache, tokens(50, seed=1), again), first)
