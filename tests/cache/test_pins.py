"""Pins: what a person protected is never evicted, and never more than leaves room for the rest."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest
import torch
from feeding import ask_in_place, kept, tokens
from opened_models import loaded
from oracle import ATTENTION, OracleCache, OracleHead
from test_exactness import assert_same_steps, noise
from tiny_models import tiny

from h2o_chat import H2OCache
from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import BudgetError
from h2o_chat.engine.engine import Engine
from h2o_chat.transformers_cache.probe import probe


class PinningHead(OracleHead):
    """The published algorithm, which never gives up what is pinned."""

    def __init__(self, budget: int, pins: set[int]) -> None:
        super().__init__(budget)
        self.pins = pins

    def evict(self) -> None:
        if len(self.held) > self.budget:
            older = self.held[: len(self.held) - self.budget // 2]
            loose = [token for token in older if token.position not in self.pins]
            self.held.remove(min(loose, key=lambda token: (token.score, token.position)))


def oracle(budget: int, pins: set[int]) -> OracleCache:
    return OracleCache(budget, partial(PinningHead, pins=pins))  # type: ignore[arg-type]


def fed(family: str, cache: H2OCache, parts: Iterable[int], seed: int = 1) -> None:
    """Feeds parts of so many tokens."""
    model = tiny(family, "h2o")
    for number, part in enumerate(parts):
        ids = torch.tensor([noise(part, seed + number)])
        with torch.inference_mode():
            model(ids, past_key_values=cache)


def holders(cache: H2OCache, position: int) -> int:
    return sum(int((cache.kept(layer) == position).any(-1).sum()) for layer in range(len(cache.layers)))


CACHES = 6  # caches of the tiny llama: 3 layers x 2 KV heads


@pytest.mark.parametrize("family", ["llama", "opt"])
def test_the_same_tokens_stay_as_in_a_literal_cache_with_pins(family: str) -> None:
    """Before they are fed, while some hold them, and after letting go: at every step, in float64."""
    pair = tiny(family, ATTENTION), tiny(family, "h2o")
    pins = {30, 31, 32}
    literal, ours = oracle(16, pins), H2OCache(16, policy="h2o-paper")
    ours.pin(pins)
    assert_same_steps(pair, (literal, ours), noise(50, seed=1))
    assert all({30, 31, 32} <= set(head) for layer in kept(ours) for row in layer for head in row)
    newest = [p for p in range(35, 50) if holders(ours, p)][-5]
    pins.add(newest)
    assert ours.pin([newest]) == 1
    assert_same_steps(pair, (literal, ours), noise(30, seed=2))
    pins.clear()
    ours.unpin()
    assert_same_steps(pair, (literal, ours), noise(40, seed=3))
    assert ours.protected == 0


@pytest.mark.parametrize("policy", ["h2o", "h2o-paper", "caote", "last-query", "random", "heavy-only"])
@pytest.mark.parametrize("parts", [[7, 50, 90, 1, 1, 40], [1] * 90, [190]])
def test_pinned_tokens_stay_whatever_is_read_and_however(policy: str, parts: list[int]) -> None:
    cache = H2OCache(40, policy=policy, chunk=16)
    pins = [*range(10, 15), 60]
    assert cache.pin(pins) == len(pins)
    fed("llama", cache, parts)
    assert [holders(cache, pin) for pin in pins] == [CACHES] * len(pins)
    fed("llama", cache, [100], seed=50)
    assert [holders(cache, pin) for pin in pins] == [CACHES] * len(pins)
    assert cache.most_kept == 40, "and the budget holds"


def test_what_is_gone_stays_gone_and_is_counted() -> None:
    cache = H2OCache(24, policy="caote")
    fed("llama", cache, [100])
    gone = next(p for p in range(4, 60) if not holders(cache, p))
    some = next(p for p in range(4, 60) if 0 < holders(cache, p) < CACHES)
    held = holders(cache, some)
    assert cache.pin([gone, some]) == 1
    fed("llama", cache, [100], seed=9)
    assert (holders(cache, gone), holders(cache, some)) == (0, held)


def test_more_than_may_be_protected_is_refused_with_the_numbers() -> None:
    cache = H2OCache(40, policy="caote")  # 20 recent, 4 sinks: 10 may be protected
    with pytest.raises(
        BudgetError, match=r"protect 24 slots; of a budget of 40 at most 10 may be protected, and 4 are\."
    ) as no:
        cache.pin(range(10, 30))
    assert no.value.hint == "It would fit into a budget of 95.", "nothing can be unpinned"
    assert H2OCache(95, policy="caote").pin(range(10, 30)) == 20, "what is said to fit fits"
    with pytest.raises(BudgetError):
        H2OCache(94, policy="caote").pin(range(10, 30))
    assert cache.pin(range(10, 16)) == 6
    fed("llama", cache, [80])
    assert cache.protected == 10
    with pytest.raises(BudgetError) as no:
        cache.pin([70])
    assert no.value.hint.endswith("; or unpin something.")
    fed("llama", cache, [1])
    assert cache.protected == 10, "nothing changed"
    cache.unpin([10, 11])
    assert (cache.pin([79, 100]), cache.protected) == (2, 10)
    for sinks_only, nothing in (("window", "nothing"), ("streaming", "nothing but the first 4 tokens")):
        with pytest.raises(BudgetError, match=f"{sinks_only} protects {nothing}: it keeps only the newest"):
            H2OCache(40, policy=sinks_only).pin([10])
    full = H2OCache(policy="full")
    assert full.pin(range(1000)) == 1000, "nothing is ever evicted from it"


def test_sinks_and_a_system_prompt_stay_protected_when_pins_are_let_go() -> None:
    cache = H2OCache(64, policy="caote")
    cache.protect(12)
    cache.pin([5, 20])
    assert cache.protected == 13, "what is protected already costs nothing more"
    fed("llama", cache, [40])
    cache.unpin()
    assert cache.protected == 12
    fed("llama", cache, [200])
    assert [holders(cache, p) for p in range(12)] == [CACHES] * 12


def test_what_is_kept_is_not_touched_when_other_pins_are_let_go() -> None:
    """Out of reach a pinned key stands elsewhere, so to let it go and pin it again would round it twice."""
    model = tiny("llama", "h2o", max_position_embeddings=64)
    cache = H2OCache(40, positions=probe(model, chats=True))
    cache.pin([10, 11, 20, 90])
    for part in tokens(80, seed=3).split(10, 1):
        ask_in_place(model, cache, part)
    layer = cache.layers[0].slots
    keys, pinned = layer.keys.clone(), torch.isin(layer.positions, torch.tensor([10, 11]))
    assert bool((layer.clamped & pinned).any())
    cache.unpin(keep=[10, 11, 90])
    assert cache.pin([10, 11]) == 2
    kept = ~torch.isin(layer.positions, torch.tensor([20]))
    assert torch.equal(layer.keys[kept], keys[kept])
    assert not torch.equal(layer.keys, keys), "what was let go is met at the edge"
    assert cache.protected == 3, "one is yet to be fed"


def test_rows_with_padding_have_the_pins_at_their_own_positions() -> None:
    cache, model = H2OCache(24, policy="h2o-paper"), tiny("llama", "h2o")
    cache.pin([12, 13])
    ids, mask = tokens(90, rows=2), torch.ones(2, 90, dtype=torch.long)
    mask[1, :30] = 0
    with torch.inference_mode():
        model(ids, attention_mask=mask, past_key_values=cache)
    for layer in range(3):
        assert [(cache.kept(layer) == p).any(-1).all().item() for p in (12, 13)] == [True, True]


def test_a_snapshot_has_the_pins_also_those_ahead() -> None:
    cache = H2OCache(40, policy="caote")
    cache.pin([10, 70])
    fed("llama", cache, [50])
    before = cache.snapshot()
    cache.unpin()
    fed("llama", cache, [100])
    assert not holders(cache, 10)
    cache.restore(before)
    fed("llama", cache, [150], seed=5)
    assert [holders(cache, p) for p in (10, 70)] == [CACHES, CACHES]
    cache.reset()
    assert cache.protected == 4, "the sinks alone, again"


def test_a_saved_memory_has_them_too(shared_models: Path, tmp_path: Path) -> None:
    settings = Settings(model=str(shared_models / "stories3m"), budget=64, policy="caote", seed=7, threads=1)
    engine, other = Engine(loaded(settings), settings), Engine(loaded(settings), settings)
    ids = engine.tokenizer.encode(" Once upon a time there was a cat.", add_special_tokens=False)
    assert engine.pin(range(2, 7)) == 5
    list(engine.generate(ids, Sampling(max_tokens=30, ignore_eos=True)))
    last = engine.seen  # waits to be fed
    assert engine.pin(range(last, last + 1)) == 1
    assert engine.protection() == (8, 64 - 32 - 8), (
        "4 sinks, of which 2 are pinned, 3 more, and one that waits"
    )
    engine.save(tmp_path / "memory.safetensors")
    other.load(tmp_path / "memory.safetensors")
    for one in (engine, other):
        events = list(one.generate(ids, Sampling(max_tokens=150, ignore_eos=True)))
        assert one.protection() == (8, 24)
        assert all(all(map(all, one.inspect(p))) for p in (*range(7), last))
        assert [e for e in events if e.event == "cache"][-1].kinds["S"] == 8


def test_counting_what_is_protected_takes_less_memory_than_a_copy_of_the_slots() -> None:
    """It is asked in the middle of a turn, where memory may be short: torch adds up a bool as 8 bytes."""
    cache = H2OCache(6000, sinks=4, recent=8)
    fed("llama", cache, [8, 1])
    assert len(cache.current_arenas()) == 1, "all layers lie together"
    with torch.profiler.profile(profile_memory=True) as profile:
        assert cache.protected == 4
    taken = [
        event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"
    ]
    assert taken  # it does see what is taken
    assert max(taken) <= 8 * 6001 * CACHES // 3
