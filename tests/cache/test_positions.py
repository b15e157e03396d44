"""Rotations of every family, and true positions whose distance is clamped to the trained window."""

from typing import Any

import pytest
import torch
from feeding import ask_in_place, tokens
from sweep import sweep
from tiny_models import FAMILIES, tiny
from torch import Tensor

import h2o_chat.transformers_cache.registered  # noqa: F401  (registers "h2o")
from h2o_chat.base.errors import UsageError, WindowFullError
from h2o_chat.cache.forward_call import Step
from h2o_chat.cache.rope import Positions, Rope
from h2o_chat.transformers_cache.cache import H2OCache
from h2o_chat.transformers_cache.probe import probe

LEARNED = {"opt", "gpt2"}


def feed(model: Any, cache: H2OCache, ids: Tensor) -> Tensor:
    """Logits [N, V] of a prompt fed with the cache's own indices, chunk by chunk."""
    return torch.cat([ask_in_place(model, cache, chunk) for chunk in ids.split(cache.plan.chunk, 1)], 1)


def close(found: Tensor, expected: Tensor) -> None:
    """Up to fp32 angles: transformers makes cosines and sines in fp32, whatever the model's precision."""
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_probe_understands_every_family(family: str, dtype: torch.dtype) -> None:
    found = probe(tiny(family, "h2o", dtype))
    assert found.learned == (family in LEARNED)
    assert found.window == 1024
    rotated = [rope is not None for rope in found.ropes]
    expected = {"smollm3": [True, False, True]}.get(family, [family not in LEARNED] * 3)
    assert rotated == expected
    if family == "gpt_neox":
        assert found.ropes[0] is not None
        assert len(found.ropes[0].inv_freq) == 1  # a quarter of 8 components, in pairs
    if family == "gemma3_text":
        local, global_ = found.ropes[0], found.ropes[1]
        assert local is not None
        assert global_ is not None
        assert not torch.equal(local.inv_freq, global_.inv_freq)


@pytest.mark.parametrize(("scaling", "slowest"), [("linear", 4), ("llama3", 4), ("yarn", 4), ("dynamic", 1)])
def test_probe_understands_scaled_rotations(scaling: str, slowest: float) -> None:
    """The slowest pair turns as many times slower."""
    parameters = {"rope_type": scaling, "factor": 4.0, "rope_theta": 10_000.0}
    parameters |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if scaling == "llama3" else {}
    parameters |= {"original_max_position_embeddings": 256} if scaling in ("llama3", "yarn") else {}
    (plain, *_), ropes = (
        probe(tiny("llama", "h2o")).ropes,
        probe(tiny("llama", "h2o", rope_parameters=parameters)).ropes,
    )
    for rope in ropes:
        assert rope is not None
        torch.testing.assert_close(rope.inv_freq[-1] * slowest, plain.inv_freq[-1])


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotations_add_up_and_keep_the_rest(interleaved: bool) -> None:
    rope = Rope(torch.tensor([1.0, 0.1]), interleaved, size=6)
    x = torch.randn(2, 3, 6, dtype=torch.float64)
    turned = rope.rotate(rope.rotate(x, torch.tensor(5.0)), torch.tensor(-2.0))
    torch.testing.assert_close(turned, rope.rotate(x, torch.tensor(3.0)))
    assert torch.equal(turned[..., 4:], x[..., 4:])
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    pair = (0, 1) if interleaved else (0, 2)
    one = rope.rotate(x, torch.tensor(1.0))[..., pair[0]]
    cos, sin = torch.tensor(1.0).cos(), torch.tensor(1.0).sin()
    torch.testing.assert_close(one, x[..., pair[0]] * cos.double() - x[..., pair[1]] * sin.double())


PINS = {7, 30}


@pytest.mark.parametrize("policy", ["h2o", "streaming", *sweep("h2o-paper")])
@pytest.mark.parametrize(("chunk", "chats"), [(1, True), (7, True), (7, False)])
def test_every_key_stands_where_its_distance_says(policy: str, chunk: int, chats: bool) -> None:
    """In layer 0 a key depends on its token alone, so the stored ones can be checked against fresh ones.

    Pinned tokens are protected at first, then not, then what is left of it again; it comes nearer in a chat.
    """
    model = tiny("llama", "h2o", num_hidden_layers=1, max_position_embeddings=64)
    positions = probe(model, chats)
    rope, window = positions.ropes[0], positions.window
    assert rope is not None
    ids = tokens(224, seed=1)
    fresh = H2OCache(budget=224, policy="window", chunk=224)  # keeps all, in order
    with torch.no_grad():
        model(ids, position_ids=torch.zeros_like(ids), past_key_values=fresh)
    raw = fresh.layers[0].slots.keys[0]  # [H, 224 + 1, D] at angle 0

    cache = H2OCache(budget=16, policy=policy, sinks=2, chunk=chunk, positions=positions)
    pinned = PINS if policy == "h2o" else set()
    seen_far = seen_nearer = False
    for start in range(0, 224, chunk):
        match start:
            case 0 | 112:
                cache.pin(pinned)
            case 105:
                cache.unpin()
        feed(model, cache, ids[:, start : start + chunk])
        layer = cache.layers[0].slots
        at = cache.kept(0)[0].long()  # [H, S]
        for head in range(at.shape[0]):
            held = at[head] >= 0
            where = at[head][held]
            far = layer.clamped[0, head][held]
            distance = cache.fed - 1 - where
            assert bool((distance[~far] < min(window, cache.reach + chunk)).all())
            assert bool((distance[far] >= cache.reach - window // 32 - chunk).all())
            safe = layer.protected[0, head][held] & torch.isin(where, torch.tensor(sorted(PINS)))
            # A sixteenth of the window, 4 tokens, is distance 3.
            index = torch.where(far, safe * (cache.reach - 4) * chats, where - cache.clocks[0].rope_origin)
            expected = rope.rotate(raw[head, where], index)
            close(layer.keys[0, head][held], expected)
            seen_far |= bool(far.any())
            seen_nearer |= start > 112 and bool((far & safe).any())
    assert seen_far  # the sinks at least
    assert seen_nearer == bool(pinned)


@pytest.mark.parametrize(
    ("policy", "budget", "reach"), [("h2o", 16, 32), ("h2o", 48, 48), ("window", 16, 64)]
)
def test_the_reach_is_a_share_of_the_window_and_holds_the_budget(
    policy: str, budget: int, reach: int
) -> None:
    model = tiny("llama", "h2o", max_position_embeddings=64)
    cache = H2OCache(budget, policy=policy, positions=probe(model))
    assert cache.reach == reach
    assert H2OCache(budget, policy=policy).reach == 0
    feed(model, cache, tokens(budget, seed=1))
    assert not any(layer.slots.clamped.any() for layer in cache.layers), (
        "nothing was evicted, so all distances are true"
    )


def test_a_chunk_longer_than_the_reach_leaves_its_neighbours_near() -> None:
    model = tiny("llama", "h2o", max_position_embeddings=64)
    cache = H2OCache(16, chunk=60, positions=probe(model))
    feed(model, cache, tokens(20, seed=1))
    feed(model, cache, tokens(44, seed=1))
    far = {int(p) for layer in cache.layers for p in cache.kept(0)[layer.slots.clamped] if p >= 0}
    assert far == set(), "all 64 tokens are in the window of the last one"


@pytest.mark.parametrize("policy", ["streaming", "h2o"])
def test_clamped_attention_equals_the_plain_formula(policy: str) -> None:
    """One layer, one token at a time: softmax over q . R(distance) k, written out pair by pair."""
    model = tiny("llama", "h2o", num_hidden_layers=1, max_position_embeddings=64)
    positions = probe(model, chats=True)
    rope, window = positions.ropes[0], positions.window
    assert rope is not None
    attention = model.model.layers[0].self_attn
    ids = tokens(160, seed=1)
    with torch.no_grad():
        hidden = model.model.layers[0].input_layernorm(model.model.embed_tokens(ids))[0]
        queries, keys, values = (
            project(hidden).view(160, -1, 8)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
    heard: list[Tensor] = []
    attention.o_proj.register_forward_pre_hook(lambda _, inputs: heard.append(inputs[0]))
    cache = H2OCache(budget=16, policy=policy, sinks=2, chunk=1, positions=positions)
    assert cache.reach == (32 if policy == "h2o" else window)
    pinned = PINS if policy == "h2o" else set()
    cache.pin(pinned)
    feed(model, cache, ids[:, :1])
    for now in range(1, 160):
        before = cache.kept(0)[0]
        feed(model, cache, ids[:, now : now + 1])
        block = window // 32
        clamped_below = -(-(now + 1 - cache.reach) // block) * block
        for head in range(4):
            kept = before[head // 2]
            at = torch.cat((kept[kept >= 0].long(), torch.tensor([now])))
            edge = torch.tensor([3 if position in pinned else cache.reach - 1 for position in at.tolist()])
            distance = torch.where(at < clamped_below, edge, now - at)
            assert bool((distance < cache.reach).all())
            turned = rope.rotate(keys[at, head // 2], -distance)
            weights = (turned @ queries[now, head] * 8**-0.5).softmax(-1)
            expected = weights @ values[at, head // 2]
            close(heard[now][0, 0].view(4, 8)[head], expected)


@pytest.mark.parametrize("family", ["smollm3", "gemma3_text", "gpt2", *sweep("llama", "gpt_neox", "opt")])
def test_indices_stay_below_the_window_for_ever(family: str) -> None:
    model = tiny(
        family, "h2o", **({"n_positions": 64} if family == "gpt2" else {"max_position_embeddings": 64})
    )
    fed: list[Tensor] = []
    model.register_forward_pre_hook(
        lambda _, __, inputs: fed.append(inputs["position_ids"]), with_kwargs=True
    )
    cache = H2OCache(budget=16, positions=probe(model))
    fed.clear()
    logits = feed(model, cache, tokens(300, seed=1))
    indices = torch.cat(fed, 1)
    assert int(indices.max()) < 64
    assert int(indices.min()) >= 0
    assert bool(logits.isfinite().all())
    steps = indices.diff()
    assert int((steps != 1).sum()) <= 300 // 32 + 1


def test_full_stops_at_the_window_and_says_so() -> None:
    model = tiny("llama", "h2o", max_position_embeddings=64)
    cache = H2OCache(policy="full", positions=probe(model))
    feed(model, cache, tokens(64, seed=1))
    assert (cache.kept(0) >= 0).sum(-1).tolist() == [[64, 64]]
    with pytest.raises(WindowFullError, match="64 tokens"):
        cache.prepare(Step(1))


def test_positions_are_refused_without_a_probe_and_beyond_the_window() -> None:
    with pytest.raises(UsageError, match="probe"):
        H2OCache(16).position_ids()
    cache = H2OCache(16, positions=Positions(64, (None,), learned=True))
    with pytest.raises(UsageError, match="window of 64"):
        cache.prepare(Step(65))
