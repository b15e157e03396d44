"""`prefill="full"`, the prompt pass of the paper, and what each policy makes of several queries at once."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from feeding import ask, kept_by, tokens
from oracle import ATTENTION, OracleCache, feed
from tiny_models import tiny
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from twins import TWINS, WholePrompt

from h2o_chat import H2OCache
from h2o_chat.base.errors import UsageError
from h2o_chat.cache import absorb, attention
from h2o_chat.policies.policies import Slots
from h2o_chat.policies.references import named

BUDGET = 16


@pytest.mark.parametrize("family", ["llama", "opt"])
def test_the_papers_prompt_pass(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the literal algorithm: two turns of a prompt and an answer, in blocks that divide neither."""
    monkeypatch.setattr(attention, "BLOCK", 7)
    oracle, ours = tiny(family, ATTENTION), tiny(family, "h2o")
    literal, cache = OracleCache(BUDGET, WholePrompt), H2OCache(BUDGET, policy="h2o-paper", prefill="full")
    for seed, length in ((1, 60), (2, 30)):
        prompt = tokens(length, seed)
        expected = []
        for at, token in enumerate(prompt[0].tolist()):
            WholePrompt.reading = at < length - 1
            expected.append(feed(oracle, literal, token))
        torch.testing.assert_close(ask(ours, cache, prompt)[0], torch.stack(expected), atol=1e-7, rtol=0)
        assert kept_by(cache) == [layer[0] for layer in literal.kept()]
        for token in tokens(25, seed + 10)[0].tolist():
            one = feed(oracle, literal, token)
            torch.testing.assert_close(feed(ours, cache, token), one, atol=1e-7, rtol=0)
            assert kept_by(cache) == [layer[0] for layer in literal.kept()]


@pytest.mark.parametrize("policy", [*TWINS, "h2o", "full"])
def test_blocks_change_nothing(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny("llama", "h2o")
    found = []
    for block in (256, 7):
        monkeypatch.setattr(attention, "BLOCK", block)
        cache = H2OCache(40, policy=policy, prefill="full", observe=True)
        logits = [ask(model, cache, part) for part in tokens(200).split([90, 1, 70, 39], 1)]
        found.append((torch.cat(logits, 1), kept_by(cache), [arena.lost for arena in cache.current_arenas()]))
    (one, held, lost), (other, other_held, other_lost) = found
    torch.testing.assert_close(one, other, atol=1e-9, rtol=0)
    assert held == other_held
    torch.testing.assert_close(lost, other_lost)


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("policy", ["h2o", "h2o-paper"])
def test_layers_choose_together_as_each_alone(
    family: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts of several lengths, with padding and into full slots; layers of gemma2 have two windows."""
    caches = []
    for most_bytes in (0, 1 << 40):
        monkeypatch.setattr(absorb, "ABSORBED_AT_ONCE_BYTES", most_bytes)
        cache = H2OCache(BUDGET, policy=policy, chunk=8, observe=True)
        for seed, length in enumerate((5, 20, 3, 7, 4, 12)):
            mask = torch.ones(2, cache.fed + length, dtype=torch.long)
            mask[0, -length : -length + seed // 2] = 0
            ask(tiny(family, "h2o"), cache, tokens(2 * length, seed).view(2, length), attention_mask=mask)
        caches.append(cache.snapshot())
    one, other = caches
    assert one.clocks == other.clocks
    for part, same in zip(one.parts, other.parts, strict=True):
        for name, state in part.states.items():
            torch.testing.assert_close(state, same.states[name], atol=1e-9, rtol=0)
        torch.testing.assert_close(part.lost, same.lost)


LOOKS: dict[str, Callable[[H2OCache], Any]] = {
    "kept": lambda cache: cache.kept(1),
    "slots": lambda cache: cache.layers[0].slots.score.clone(),
    "snapshot": lambda cache: cache.snapshot().parts[0].states["score"],
    "row": lambda cache: cache.take_row(1).parts[0].states["positions"],
    "pin": lambda cache: cache.pin([30, 38]),
    "unpin": lambda cache: cache.unpin(),
    "protected": lambda cache: cache.protected,
    "select_rows": lambda cache: cache.select_rows(torch.tensor([1, 0])),
    "put_row": lambda cache: cache.put_row(0, None),
    "a token": lambda cache: ask(tiny("llama", "h2o"), cache, tokens(2, 9).view(2, 1)),
    "a prompt": lambda cache: ask(tiny("llama", "h2o"), cache, tokens(18, 9).view(2, 9)),
}


@pytest.mark.parametrize("look", LOOKS)
def test_who_stays_is_chosen_before_anybody_looks(look: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absorbing later (`H2OCache.current_arenas`) equals absorbing at once, layer by layer."""
    found = []
    for most_bytes in (1 << 40, -1):  # all waits; nothing does
        monkeypatch.setattr(absorb, "WAITING_BYTES", most_bytes)
        cache = H2OCache(BUDGET, chunk=8, observe=True)
        for seed, length in enumerate((30, 1, 5, 7)):
            ask(tiny("llama", "h2o"), cache, tokens(2 * length, seed).view(2, length))
        assert [len(arena.waiting) for arena in cache.arenas_as_they_are] == [3 if most_bytes > 0 else 0]
        found.append((LOOKS[look](cache), cache.snapshot()))
    (seen, one), (other_seen, other) = found
    assert torch.equal(seen, other_seen) if isinstance(seen, Tensor) else seen == other_seen
    assert one.clocks == other.clocks
    for part, same in zip(one.parts, other.parts, strict=True):
        assert all(torch.equal(state, same.states[name]) for name, state in part.states.items())
        torch.testing.assert_close(part.lost, same.lost)  # summed in another order


def test_a_choice_that_fails_is_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sees slots of which half was chosen; from a snapshot it goes on."""
    monkeypatch.setattr(absorb, "ABSORBED_AT_ONCE_BYTES", 0)  # a layer at a time
    model, cache = tiny("llama", "h2o"), H2OCache(BUDGET, chunk=8)
    ask(model, cache, tokens(30))
    before, chosen = cache.snapshot(), absorb.absorb

    def fails(arena: Any, at: int, *others: Any, **more: Any) -> None:
        if at == 1:
            raise MemoryError("there is no more")
        chosen(arena, at, *others, **more)

    ask(model, cache, tokens(7, 1))
    monkeypatch.setattr(absorb, "absorb", fails)
    with pytest.raises(MemoryError):
        cache.kept(0)
    monkeypatch.setattr(absorb, "absorb", chosen)
    for look in (cache.snapshot, lambda: cache.kept(0), lambda: ask(model, cache, tokens(1))):
        with pytest.raises(UsageError, match="was interrupted"):
            look()
    cache.restore(before)
    ask(model, cache, tokens(7, 1))
    expected = H2OCache(BUDGET, chunk=8)
    for seed, length in enumerate((30, 7)):
        ask(model, expected, tokens(length, seed))
    assert kept_by(cache) == kept_by(expected)


def test_a_prompt_is_judged_by_its_last_32_queries() -> None:
    """SnapKV: the sum of what the last 32 queries gave, and the best of 7 neighbours."""
    eager = tiny("llama", "eager")
    ids = tokens(100)
    with torch.no_grad():
        weights = eager(ids, output_attentions=True).attentions
    cache = H2OCache(64, policy="snapkv", prefill="full")
    ask(tiny("llama", "h2o"), cache, ids)
    for layer, attended in enumerate(weights):
        for head in range(2):
            sums = attended[0, 2 * head : 2 * head + 2, -32:].sum((0, 1)).tolist()
            rank = [max(sums[max(0, at - 3) : at + 4]) for at in range(100)]
            best = sorted(range(84), key=lambda at: (rank[at], at))[-48:]  # the newest 16 are safe
            assert kept_by(cache)[layer][head] == sorted(best) + list(range(84, 100))


def test_pooling_goes_by_age_and_leaves_empty_slots_out() -> None:
    positions = torch.tensor([[[9, -1, 5, 40, 7, 21, 12, 30]]], dtype=torch.int32)
    score = torch.tensor([[[3.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]]])
    slots = Slots(positions=positions, score=score[..., None])
    # By age: - 5 7 9 12 21 30 40, and three neighbours to either side.
    assert named("snapkv").priority(slots).tolist() == [[[3, 3, 3, 1, 3, 3, 3, 3]]]


class Largest(TorchDispatchMode):
    """The largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = operation(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            self.elements = max(self.elements, out.numel())
        return out


def test_no_matrix_of_the_whole_prompt_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "BLOCK", 16)
    model, length = tiny("llama", "h2o"), 900
    with Largest() as largest:
        ask(model, H2OCache(BUDGET, prefill="full"), tokens(length))
    heads = 4
    assert largest.elements < heads * length * length / 10
    assert largest.elements >= heads * 16 * length  # the measure sees what it should
