"""The graph step beside transformers' step, its plain twin: the same tokens in, the same logits and slots.

Without a GPU its kernels run under Triton's interpreter; captured work is then run as it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from sweep import sweep
from tiny_models import tiny
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed: it has no wheel for this system")

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.cache.arena import Arena, in_use_first
from h2o_chat.cache.eviction import TORCH
from h2o_chat.cache.quantized import dequantise, quantise
from h2o_chat.cache.rope import Rope
from h2o_chat.engine.engine import Engine
from h2o_chat.engine.runner import Runner, cache_for
from h2o_chat.events.events import CacheState, Token
from h2o_chat.graph import launches, prompts
from h2o_chat.graph.int4 import Int4, packed
from h2o_chat.graph.loading import LoadedGraph, why_not_graph
from h2o_chat.graph.weights import to_int4
from h2o_chat.lab.shared.shapes import byte_tokenizer
from h2o_chat.native.probing import frame_of
from h2o_chat.policies.scores import LATELY, Received

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

NEAR = 2e-4 if DEVICE == "cuda" else 5e-5  # between logits of some tens: sums in another order


def llama(layers: int = 1, head_dim: int = 16, **sizes: Any) -> Any:
    """A random Llama."""
    return tiny("llama", "h2o", torch.float32, head_dim=head_dim, num_hidden_layers=layers, **sizes)


def loaded(model: Any) -> LoadedGraph:
    """A model as the program would have opened it."""
    frame = frame_of(model.config)
    assert not isinstance(frame, str), frame
    return LoadedGraph(
        model=model.to(DEVICE),
        tokenizer=byte_tokenizer(),
        name="tiny",
        revision=None,
        quantization="none",
        dtype="float32",
        device=DEVICE,
        frame=frame,
    )


@dataclass
class Pair:
    """Two runners of one model: the graph step decodes in the first, transformers' in the second."""

    graph: Runner
    plain: Runner

    def feed(self, pieces: list[list[int]], prompt: bool) -> Tensor:
        """Feeds both; the second one's logits [R, V] after the last token, which the first one's must be."""
        mine, other = (
            one.feed(pieces, prompt=prompt)[:, -1].float().clone() for one in (self.graph, self.plain)
        )
        fed = torch.tensor([bool(piece) for piece in pieces])
        torch.testing.assert_close(mine[fed], other[fed], atol=NEAR, rtol=1e-4)
        return other

    def answer(self, logits: Tensor, tokens: int) -> Tensor:
        """Feeds the likeliest token of one row after the other; the last logits."""
        for _ in range(tokens):
            logits = self.feed([[int(logits.argmax())]], prompt=False)
        return logits

    def arenas(self) -> Iterator[tuple[Arena, Arena]]:
        """Those of both."""
        one, other = (runner.cache.current_arenas() for runner in (self.graph, self.plain))
        return zip(one, other, strict=True)

    def compare_slots(self) -> None:
        """Kept tokens are the same in every head, and what is known of them is nearly."""
        for mine, other in self.arenas():
            for name, state in mine.slots.states.items():
                held = other.slots.positions >= 0
                if state.dtype.is_floating_point:
                    torch.testing.assert_close(
                        state[held], other.slots.states[name][held], atol=NEAR, rtol=1e-3
                    )
                else:
                    assert torch.equal(state[held], other.slots.states[name][held]), name


def pair(model: Any, budget: int, rows: int = 1, **settings: Any) -> Pair:
    """Two runners of a model in fp32."""
    one, asked = loaded(model), Settings(budget=budget, **settings)
    runners = [Runner(one, cache_for(one, asked), rows) for _ in range(2)]
    assert runners[0].graph is not None
    runners[1].graph, runners[1]._kernels = None, TORCH
    return Pair(*runners)


def words(tokens: int, seed: int = 0) -> list[int]:
    """Random tokens."""
    return torch.randint(1, 128, (tokens,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("family", ["mistral", "qwen2", "qwen3", "smollm3", *sweep("llama")])
def test_a_conversation_of_each_family(family: str) -> None:
    """Prompt, evictions, clamped keys, a second prompt; with sliding windows and layers without RoPE."""
    both = pair(tiny(family, "h2o", torch.float32, head_dim=16, max_position_embeddings=40), 16)
    both.answer(both.feed([words(14)], True), 6)
    both.answer(both.feed([words(6, seed=1)], True), 2)
    assert any(arena.clamps for arena in both.graph.cache.current_arenas())
    both.compare_slots()


def test_heads_of_no_power_of_two_and_slots_that_several_programs_share() -> None:
    """Other shapes of attention: `test_one_token_attends`."""
    model = llama(head_dim=80, num_attention_heads=8, max_position_embeddings=8192)
    both = pair(model, 300, chunk=300)
    assert both.graph.graph is not None
    logits = both.feed([words(300)], True)
    both.answer(logits, 4)  # the second one fills the last slot, and some are given up
    both.compare_slots()


def test_rows_of_different_age_and_one_that_waits() -> None:
    """A row is what it would be alone; one that is fed nothing does not change."""
    both = pair(llama(2), 16, rows=3)
    logits = both.feed([words(12), words(5, seed=1), words(9, seed=2)], True)
    for number in range(8):
        tokens = [[int(row.argmax())] for row in logits]
        if number % 3 == 2:
            tokens[1] = []
        logits = torch.where(
            torch.tensor([bool(one) for one in tokens], device=DEVICE)[:, None],
            both.feed(tokens, False),
            logits,
        )
    both.compare_slots()


@pytest.mark.parametrize("policy", ["h2o-paper", "window"])
def test_other_policies(policy: str) -> None:
    """Those whose scores the kernels know."""
    both = pair(llama(2), 12, policy=policy)
    both.answer(both.feed([words(10)], True), 8)
    both.compare_slots()


def test_what_the_kernels_do_not_know_goes_the_usual_way() -> None:
    """An unbounded cache, and slots of 4 bits."""
    model = llama()
    ways: list[dict[str, Any]] = [{"policy": "full"}, {"kv_dtype": "int4"}]
    for settings in ways:
        both = pair(model, 16, **settings)
        logits = both.feed([words(4)], True)
        assert both.graph.graph is not None
        assert not both.graph.graph.computes(both.graph.cache)
        both.answer(logits, 1)


def test_going_back_to_a_snapshot() -> None:
    """Slots lie elsewhere then: what was captured before is not used again."""
    both = pair(llama(), 16)
    logits = both.feed([words(14)], True)
    before = [one.row_snapshot(0) for one in (both.graph, both.plain)]
    first = [both.feed([[token]], False) for token in words(6, seed=3)][-1]
    for one, snapshot in zip((both.graph, both.plain), before, strict=True):
        one.put(0, snapshot)
    again = [both.feed([[token]], False) for token in words(6, seed=3)][-1]
    torch.testing.assert_close(first, again)
    assert not torch.equal(first, logits)


def test_a_token_that_is_fed_ahead() -> None:
    """It gives the logits and slots of one that is fed; taken back it leaves no trace, bit for bit."""
    model = llama(max_position_embeddings=160)
    one = loaded(model)
    usual, ahead = (Runner(one, cache_for(one, Settings(budget=128)), 1) for _ in range(2))
    logits = [runner.feed([words(135)], prompt=True)[0, -1].clone() for runner in (usual, ahead)]
    went = 0
    for number in range(30):  # evictions, clamped and rebased keys
        token = int(logits[0].argmax())
        before, seen = ahead.row_snapshot(0), ahead.clock(0).seen
        ahead.feed_ahead(torch.tensor([token], device=DEVICE))
        went += ahead._ahead is not None
        assert ahead.clock(0).seen == seen, "nobody sees it yet"
        if number % 5 == 0:  # it was another one, none, or somebody looks
            ahead.chosen = -1 if number % 2 else token + 1
            assert_same(ahead.row_snapshot(0), before)
        ahead.chosen = token
        logits = [runner.feed([[token]], prompt=False)[0, -1].clone() for runner in (usual, ahead)]
        assert torch.equal(*logits)
        assert ahead.clock(0).seen == seen + 1
    assert_same(ahead.row_snapshot(0), usual.row_snapshot(0))
    assert usual.cache.clocks[0].clamped_below
    assert usual.cache.clocks[0].rope_origin
    assert 14 < went < 20, "what evicts or turns keys is not fed ahead"


def test_the_first_token_does_not_wait_until_the_prompt_is_absorbed() -> None:
    model = llama(2, max_position_embeddings=256)
    engine = Engine(loaded(model), Settings(budget=64, prefill="full", events_every=0))
    engine.sampler.on_cpu = False
    waiting = list[bool]()
    for turn in range(2):
        for event in engine.generate(words(100, seed=turn), Sampling(temperature=0, max_tokens=4)):
            if isinstance(event, Token):
                waiting.append(any(arena.waiting for arena in engine.runner.cache.arenas_as_they_are))
    assert waiting == 2 * [True, False, False, False]


def assert_same(one: Any, other: Any) -> None:
    """Two snapshots are equal, but for keys and values of empty slots."""
    assert (one.clocks, one.fed) == (other.clocks, other.fed)
    for mine, theirs in zip(one.parts, other.parts, strict=True):
        held = mine.states["positions"] >= 0
        for name, state in mine.states.items():
            some = held if name in ("keys", "values") else ...
            assert torch.equal(state[some], theirs.states[name][some]), name


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_answers_are_the_same_where_tokens_are_fed_ahead(temperature: float) -> None:
    """Answers that end by length, at a stop token and by a reader who leaves; then the next one."""
    model = llama(max_position_embeddings=256)
    told = []
    for goes_ahead in (True, False):
        engine = Engine(loaded(model), Settings(budget=96, events_every=5, seed=3))
        engine.sampler.on_cpu = False
        if not goes_ahead:
            engine.runner.feed_ahead = lambda token: None  # type: ignore[method-assign]
        sampling, tokens = Sampling(temperature=temperature, max_tokens=9), list[Any]()
        for turn in range(3):
            events = engine.generate(words(24, seed=turn), sampling)
            for event in events:
                if isinstance(event, Token):
                    tokens.append((event.id, event.position))
                    if turn == 1 and len(tokens) % 9 == 7:
                        events.close()  # type: ignore[attr-defined]
                        break
                elif isinstance(event, CacheState):
                    tokens.append((event.seen, event.kept, event.lost))
            if turn == 1:
                engine.eos = frozenset([tokens[-2][0]])
        told.append((tokens, engine.snapshot()))
    assert told[0][0] == told[1][0]
    assert_same(told[0][1].cache, told[1][1].cache)


# -- slots in bytes --------------------------------------------------------------------------------------


def numbers_of(arena: Arena, index: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values of an arena of one layer as attention means them, keys turned. fp64, [R, H, S, D]

    Args:
        index: [R, H, S] rotation indices of keys that are not clamped.
    """
    slots, distance = arena.slots, arena.plan.distance
    if arena.plan.bits is None:
        return slots.keys[0].double(), slots.values[0].double()
    keys, values = (dequantise(one[0], 8, torch.float32) for one in (slots.keys, slots.values))
    far = distance.nearer * (slots.protected & (slots.positions >= distance.nearer_from))
    turned = arena.rope.rotate(keys, torch.where(slots.clamped[0], far[0], index))
    return turned.double(), values.double()


@pytest.mark.parametrize(
    ("kv", "dtype"), [("auto", torch.float32), ("int8", torch.float32), ("int8", torch.float16)]
)
@pytest.mark.parametrize(
    ("groups", "size", "budget", "rows", "window"),
    [
        (1, 64, 64, 2, None),
        (4, 80, 300, 2, 100),
        (8, 128, 129, 1, None),
        (2, 64, 1024, 1, 700),
        pytest.param(1, 128, 4096, 1, None, marks=pytest.mark.sweep),
    ],
)
def test_one_token_attends(
    kv: Any, dtype: torch.dtype, groups: int, size: int, budget: int, rows: int, window: int | None
) -> None:
    """Kernels beside the formula, over slots of random positions, some clamped, some empty: they write the
    same bytes, and output and scores are near."""
    heads, trained = 2, 16_384
    model = llama(head_dim=size, num_attention_heads=heads * groups, max_position_embeddings=trained)
    one = loaded(model.to(dtype))
    runner = Runner(one, cache_for(one, Settings(budget=budget, kv_dtype=kv)), rows)
    runner.feed([words(3)] * rows, prompt=True)  # makes the arena
    step, (arena,) = runner.graph, runner.cache.current_arenas()
    assert arena.plan.distance is not None
    step.frame = replace(step.frame, sees=(window,))
    distance = replace(arena.plan.distance, nearer=trained // 3)
    runner.cache.plan = arena.plan = replace(arena.plan, distance=distance)
    arena.rope = Rope(step._ropes[0][0], False, size)  # `tiny` rounds that of the model to its precision
    near = 1e-5 if dtype == torch.float32 else 5e-3
    torch.manual_seed(budget)
    states, slots = arena.slots.states, budget + 1
    # Ages that differ by row: an index is a position - origin, and those before the origin are negative.
    seen, origin = budget + torch.tensor([900, 2300])[:rows], torch.tensor([0, 1000])[:rows]
    for row in range(rows):
        for head in range(heads):
            states["positions"][0, row, head] = torch.randperm(int(seen[row]))[:slots].sort().values
    empty = torch.rand(states["positions"].shape) < 0.2
    empty[..., 7], empty[..., 8] = True, False
    states["positions"].masked_fill_(empty.to(DEVICE), -1)
    leaves = states["positions"] < (seen // 2)[None, :, None, None].to(DEVICE)
    states["clamped"].copy_(leaves & (states["positions"] >= 0))
    states["protected"].copy_(torch.rand(empty.shape) < 0.1)
    drawn = [torch.randn(1, rows, heads, slots, size, device=DEVICE) for _ in range(2)]
    for name, x in zip(("keys", "values"), drawn, strict=True):
        states[name].copy_(x if kv == "auto" else quantise(x, 8))
    states["score"].uniform_()
    arena.order.copy_(in_use_first(states["positions"]))
    arena.rope_origin.copy_(origin)
    held = int((states["positions"] >= 0).sum(-1).min())
    in_use = torch.full((rows,), held)
    slot = arena.order[0, :, :, held].long()  # [R, H]
    states["positions"].scatter_(3, arena.order[..., held:].long(), -1)
    before = {name: state.clone() for name, state in states.items()}

    room = step._room_for(runner.cache, rows)
    zeros = torch.zeros(rows, dtype=torch.int32)
    now = torch.stack([seen, seen - origin, in_use, zeros, zeros, seen + 1, zeros]).int()
    room.now.copy_(now)
    room.qkv.normal_()
    turns, edge = step._turn(room.now[1], 0), torch.tensor([distance.edge], device=DEVICE)
    step._attend(runner.cache, room, 0, arena, 0, step.weights.layers[0], (turns, step._turn(edge, 0)), True)

    queries, key, value = room.qkv.view(rows, -1, size).split([heads * groups, heads, heads], 1)
    rope, here = arena.rope, (seen - origin)[:, None].to(DEVICE)
    at = slot[..., None, None]
    for name, new in (("keys", key if kv == "int8" else rope.rotate(key, here)), ("values", value)):
        written = states[name][0].gather(2, at.expand(-1, -1, 1, states[name].shape[-1]))[:, :, 0]
        if kv == "int8":
            assert torch.equal(written.cpu(), quantise(new.cpu(), 8)), name
        else:
            torch.testing.assert_close(written, new, atol=1e-5, rtol=1e-5)
    positions = states["positions"][0]
    assert torch.equal(positions.gather(2, at[..., 0])[..., 0], seen[:, None].expand(-1, heads).to(positions))
    keys, values = numbers_of(arena, (positions - origin.to(positions)[:, None, None]))
    asked = queries.view(rows, heads, groups, size)
    nearby, far = (rope.rotate(asked, to).double() @ keys.transpose(-1, -2) for to in (here[..., None], edge))
    logits = torch.where(states["clamped"][0][:, :, None], far, nearby) * size**-0.5
    visible = torch.zeros_like(seen) if window is None else seen - window + 1
    unseen = positions < visible.to(positions)[:, None, None]
    found = logits.masked_fill(unseen[:, :, None], -torch.inf).softmax(-1)
    output = (found @ values).float()
    torch.testing.assert_close(room.attended.view_as(output), output, atol=near, rtol=10 * near)
    wanted = before["score"][0] * runner.cache.plan.decay_factor + found.transpose(-1, -2).float()
    torch.testing.assert_close(states["score"][0], wanted, atol=near, rtol=10 * near)


def test_a_conversation_with_slots_in_bytes() -> None:
    """Prompts, evictions and clamped keys. Transformers' step turns a key, and turns it back to store it: now
    and then a number lies so near a half that it is rounded to the other side."""
    model = llama(3, max_position_embeddings=40)
    both = pair(model, 16, kv_dtype="int8")
    logits = both.feed([words(14)], True)
    assert both.graph.graph.computes(both.graph.cache)
    for number in range(12):
        pieces = [words(6, seed=number)] if number == 6 else [[int(logits.argmax())]]
        mine, logits = (
            one.feed(pieces, prompt=number == 6)[:, -1].clone() for one in (both.graph, both.plain)
        )
        assert float((mine - logits).norm() / logits.norm()) < 2e-3
    assert any(arena.clamps for arena in both.graph.cache.current_arenas())
    for one, other in both.arenas():
        assert torch.equal(one.slots.positions, other.slots.positions)
        for name in ("keys", "values"):
            assert (one.slots.states[name] != other.slots.states[name]).float().mean() < 0.01


# -- products ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("columns", [256, 768])
def test_products_in_4_bits(gated: bool, columns: int) -> None:
    """Whole numbers are multiplied, so the formula with rounded activations is met but for the last bits."""
    torch.manual_seed(0)
    rows = 24
    held = packed(torch.randn(rows, columns, device=DEVICE))
    x, norm = torch.randn(columns, device=DEVICE), torch.rand(columns, device=DEVICE)
    bias = None if gated else torch.randn(rows, device=DEVICE)
    y = torch.ones(rows // 2 if gated else rows, device=DEVICE)
    launches.product(held, x, y, norm=norm, epsilon=1e-5, bias=bias, gated=gated, adds=not gated)
    found = held.dequantised(torch.float32) @ in_bytes(x * torch.rsqrt(x.square().mean() + 1e-5) * norm)
    if gated:
        wanted = torch.nn.functional.silu(found[: rows // 2]) * found[rows // 2 :]
    else:
        assert bias is not None
        wanted = found + bias + 1
    torch.testing.assert_close(y, wanted, atol=1e-3, rtol=1e-4)


def in_bytes(x: Tensor) -> Tensor:
    """Activations rounded to 8 bits with one scale for each group of `int4.Int4`."""
    groups = _by_group(x[None])
    scales = groups.abs().amax(-1, keepdim=True) / 127
    rounded = (groups / scales + 0.5).floor() * scales
    return rounded.view(-1, 8, 8, 4).transpose(1, 2).reshape(-1)


def _by_group(weights: Tensor) -> Tensor:
    """[N, K] -> [N, K / 32, 32]: in a block of 256 columns a group is four neighbours of each 32."""
    return weights.view(len(weights), -1, 8, 8, 4).transpose(2, 3).reshape(len(weights), -1, 32)


def test_weights_are_rounded_to_the_nearest_of_16_numbers() -> None:
    """Nothing else is rounded: a matrix of such numbers comes back bit for bit."""
    torch.manual_seed(1)
    held = packed(torch.randn(9, 512, device=DEVICE))
    numbers = held.dequantised(torch.float32)
    again = packed(numbers)
    assert torch.equal(again.dequantised(torch.float32), numbers)
    largest = _by_group(torch.randn(9, 512, device=DEVICE)).abs().amax()
    assert held.shape == (9, 512)
    assert float(numbers.abs().max()) < 2 * float(largest)


def test_a_model_in_4_bits_is_the_one_that_reads_prompts() -> None:
    """Its layers hold the very words that the step multiplies by, and logits follow what these mean."""
    model = llama(head_dim=64, hidden_size=256, intermediate_size=256)
    to_int4(model, torch.device(DEVICE))
    both = pair(model, 16)
    assert both.graph.graph is not None
    layer = both.graph.graph.weights.layers[0]
    assert isinstance(layer.qkv, Int4)
    assert layer.qkv.words.data_ptr() == model.model.layers[0].self_attn.q_proj.held.words.data_ptr()
    prompt = [words(10)]
    mine, other = (one.feed(prompt, prompt=True)[0, -1] for one in (both.graph, both.plain))
    torch.testing.assert_close(mine, other, atol=NEAR, rtol=1e-4)
    token = [[int(mine.argmax())]]
    mine, other = (one.feed(token, prompt=False)[0, -1] for one in (both.graph, both.plain))
    assert float((mine - other).norm() / other.norm()) < 0.05  # activations in 8 bits


# -- prompts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tokens", "groups", "size"), [(100, 2, 24), (64, 1, 64), (130, 4, 80)])
def test_what_keys_receive_follows_from_the_log_sum_exp(tokens: int, groups: int, size: int) -> None:
    """The result equals that of holding all probabilities."""
    torch.manual_seed(0)
    queries = torch.randn(1, 2 * groups, tokens, size, device=DEVICE)
    keys = torch.randn(1, 2, tokens, size, device=DEVICE)
    logits = queries.view(1, 2, groups, tokens, size) @ keys[:, :, None].transpose(-1, -2) * 0.2
    logits = logits.masked_fill(torch.ones(tokens, tokens, device=DEVICE).triu(1).bool(), -torch.inf)
    later = torch.arange(tokens - 1, -1, -1, device=DEVICE)[None]
    found = prompts.sums(queries, keys, logits.logsumexp(-1).flatten(1, 2), 0.2, 0.96)
    for name, grows in (("score", Received()), ("lately", LATELY)):
        wanted = grows.gained(0.96, logits.softmax(-1), later, later)
        torch.testing.assert_close(found[name], wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.gpu
def test_flash_attention_reads_a_long_prompt_as_products_do() -> None:
    """In bf16, one pass: the same tokens stay, but for hundredths, and the logits are near."""
    model = tiny(
        "llama", "h2o", torch.bfloat16, head_dim=64, num_hidden_layers=2, max_position_embeddings=2048
    )
    one = loaded(model)
    asked = Settings(budget=128, prefill="full")
    runners = [Runner(one, cache_for(one, asked)) for _ in range(2)]
    runners[1]._kernels = type(runners[1]._kernels)()
    mine, other = (one.feed([words(1024)], prompt=True)[0, -1].float() for one in runners)
    assert float((mine - other).norm() / other.norm()) < 0.05
    for layer in range(2):
        kept = [set(one.cache.kept(layer)[0, 0].tolist()) for one in runners]
        assert len(kept[0] & kept[1]) > 0.9 * len(kept[0])


@pytest.mark.parametrize(
    "family", ["gemma2", "gemma3_text", "phi3", "olmo2", "granite", "qwen3_moe", "olmoe"]
)
def test_families_that_the_native_step_alone_computes_are_refused(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "true")  # Triton's compiler
    more = {"head_dim": 16} | ({"hidden_size": 64} if family == "olmoe" else {})
    config = tiny(family, "eager", torch.float32, **more).config
    assert not isinstance(frame_of(config), str)
    found = why_not_graph(Settings(), config)
    assert isinstance(found, str)
    assert f"this is {family}" in found
