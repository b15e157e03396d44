"""The native step against a twin in torch, against itself in every form, and against each row alone."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from families import MODELS, Pack
from sweep import sweep
from torch import Tensor
from twin import twin

from h2o_chat.base.errors import UsageError
from h2o_chat.cache.forward_call import Step
from h2o_chat.native import library
from h2o_chat.native.gguf_weights import GgufWeights
from h2o_chat.native.native_model import positions_of
from h2o_chat.native.packed import Packed
from h2o_chat.native.packing import packed_for
from h2o_chat.native.step import NativeStep
from h2o_chat.transformers_cache.cache import H2OCache

pytestmark = pytest.mark.usefixtures("compiled")
Compute = Callable[[H2OCache, Tensor], Tensor]
"""The logits of a prepared step, of every row's last token: tokens [R, N] in, [R, V] out."""

CHUNK = 24


def cache_of(packed: Packed | GgufWeights, budget: int, policy: str = "h2o", kv: str = "auto") -> H2OCache:
    """An empty one, as the engine makes it."""
    positions = positions_of(packed.frame, chats=True)
    return H2OCache(budget, policy=policy, chunk=CHUNK, positions=positions, observe=True, kv=kv)


def by(step: NativeStep) -> Compute:
    """The native step computes."""
    return lambda cache, ids: step.feed(cache, ids, all_columns=False)[:, -1]


def by_layers(step: NativeStep) -> Compute:
    """The library's products, with torch's attention and scores."""
    return lambda cache, ids: step._layer_by_layer(cache, ids, all_columns=False)[:, -1]


def by_model(model: Any) -> Compute:
    """A transformers model with our attention computes."""

    def compute(cache: H2OCache, ids: Tensor) -> Tensor:
        where = cache.position_ids().expand(len(ids), -1)
        return model(input_ids=ids, position_ids=where, past_key_values=cache, use_cache=True).logits[:, -1]

    return compute


@torch.inference_mode()
def talk(compute: Compute, cache: H2OCache, tokens: Sequence[int], prompt: int = CHUNK) -> list[Tensor]:
    """Reads the first tokens as a prompt, the others one by one; the logits of each step."""
    found = []
    for piece in filter(None, [list(tokens[:prompt]), *([token] for token in tokens[prompt:])]):
        cache.prepare(Step(len(piece)))
        found.append(compute(cache, torch.tensor([piece])))
    return found


def said(count: int, vocabulary: int, seed: int = 0) -> list[int]:
    """Random tokens."""
    return torch.randint(3, vocabulary, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def everything(cache: H2OCache) -> list[Tensor]:
    """All states of the slots, and their order."""
    known = [arena.slots.states | {"order": arena.order} for arena in cache.current_arenas()]
    return [state for states in known for state in states.values()]


def assert_every_way_gives_the_same_bits(
    packed: Packed | GgufWeights,
    read: Callable[[NativeStep, H2OCache], list[Tensor]],
    budget: int,
    kv: str = "auto",
) -> None:
    """In every form and with any number of threads logits are the same, and what the slots hold."""
    expected: list[Tensor] = []
    ways = [(form, 1) for form in library.forms()] + [(library.forms()[-1], threads) for threads in (2, 3)]
    for form, threads in ways:
        cache = cache_of(packed, budget, kv=kv)
        found = read(NativeStep(packed, threads, form), cache) + everything(cache)
        expected = expected or found
        for mine, other in zip(found, expected, strict=True):
            assert torch.equal(mine, other), (form, threads)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("llama", 8),
        *((name, 4) for name in MODELS),
        *sweep(*((name, 8) for name in MODELS if name != "llama")),
    ],
)
def test_it_computes_what_torch_computes(
    name: str, bits: int, folders: Callable[[str], Path], pack: Pack
) -> None:
    """Logits are equal but for fp32, unless an activation lies so near a half that it is rounded to the other
    side: then torch in fp32 and torch in fp64 differ as much (docs/NATIVE.md). Three conversations: what is
    rounded otherwise in a prompt stays in the slots, and may decide who stays. With weights of 8 bits, torch
    rounds no activation here."""
    packed = pack(name, bits)
    ours, exact = list[Tensor](), list[Tensor]()
    for seed in range(3):
        tokens = said(60, packed.frame.vocabulary, seed)
        caches = cache_of(packed, 40), cache_of(packed, 40)
        plain = by_model(twin(folders(name), packed, torch.float64, activations=bits == 4))
        mine = talk(by(NativeStep(packed, 2)), caches[0], tokens, 12)
        twins = talk(plain, caches[1], tokens, 12)
        kept = [[cache.kept(layer).sort().values for layer in range(packed.frame.layers)] for cache in caches]
        if all(torch.equal(*both) for both in zip(*kept, strict=True)):  # else two slots were as good as even
            ours, exact = ours + mine, exact + twins
    assert len(ours) >= 2 * len(mine), "of three conversations at most one had such a tie"
    off = torch.stack([(a.double() - b).abs().max() for a, b in zip(ours, exact, strict=True)])
    size = torch.stack(exact).abs().max()
    assert off.sort().values[:10].max() < 1e-4 * size, "where nothing is rounded to the other side"
    assert off.max() < (1e-3 if bits == 8 else 0.1) * size, (
        "where something is, in a key or value of before too"
    )


WAYS = [
    *((policy, "auto") for policy in ("h2o", "h2o-paper", "caote", "window", "lru", "full")),
    *(("h2o", kv) for kv in ("int8", "int4")),
]
"""Policies, and how keys and values are held. Here the library is held against torch, state by state."""


@pytest.mark.parametrize(
    ("name", "policy", "kv"),
    [
        *(("llama", *way) for way in WAYS),
        *(("qwen2", "h2o", "auto"), ("smollm3", "h2o", "auto"), ("smollm3", "h2o", "int8")),
        *(("olmoe", "h2o", "auto"), ("qwen3_moe", "h2o", "auto")),
        ("llama, scaled RoPE", "h2o", "int8"),
        *sweep(*(("qwen2", *way) for way in WAYS[1:])),
        *sweep(*(("smollm3", *way) for way in WAYS[1:] if way != ("h2o", "int8"))),
    ],
)
def test_one_call_does_what_the_layers_do(name: str, policy: str, kv: str, pack: Pack) -> None:
    """The library's attention, slots and scores against torch's, now and then from the same slots.

    Over clamped keys, some of them of a system prompt, many evictions and a rebase. Where an activation is
    rounded to the other side a step differs by a little; where keys and values are bytes, and one of them is,
    by more. What the cache holds is then compared where the logits agree to 2e-4: half of them do to 1e-4, a
    few more or less by how this processor's torch orders its sums.
    """
    packed = pack(name, 8)
    step = NativeStep(packed, 2)
    cache, other = cache_of(packed, 64, policy, kv), cache_of(packed, 64, policy, kv)
    for one in (cache, other):
        one.protect(12)
    tokens = said(490 if policy == "full" else 620, packed.frame.vocabulary)
    talk(by(step), cache, tokens[:100])
    equal = looks = 0
    for at in range(100, len(tokens) - 1, 13):
        other.restore(cache.snapshot())
        (ours,) = talk(by(step), cache, [tokens[at]], 0)
        (theirs,) = talk(by_layers(step), other, [tokens[at]], 0)
        size = float(theirs.abs().max())
        assert torch.allclose(ours, theirs, atol=(1e-3 if kv == "auto" else 0.1) * size)
        looks += 1
        if kv == "auto" or torch.allclose(ours, theirs, atol=2e-4 * size):
            equal += 1
            mine, others = (everything(one) for one in (cache, other))
            for a, b in zip(mine, others, strict=True):
                if a.dtype == torch.uint8:
                    assert (a != b).float().mean() < 0.01, "few numbers are rounded to the next level"
                elif kv == "auto":
                    assert torch.allclose(a.float(), b.float(), atol=1e-3)
                else:
                    assert ((a.float() - b.float()).abs() > 1e-2).float().mean() < 0.01
        talk(by(step), cache, tokens[at + 1 : at + 13], 0)
    assert equal > 0.5 * looks
    assert policy == "full" or cache.clocks[0].rope_origin > 0, "there was a rebase"


HELD = [(bits, kv) for bits in (8, 4) for kv in ("auto", "int8", "int4")]
"""Bits of weights, and how keys and values are held."""


@pytest.mark.parametrize(
    ("name", "bits", "kv"),
    [
        *(("llama", 8, "int4"), ("qwen3", 8, "auto"), ("smollm3", 4, "int8")),
        *(("olmoe", 8, "auto"), ("qwen3_moe", 4, "auto")),
        *sweep(*(("llama", *held) for held in HELD if held != (8, "int4"))),
        *sweep(*(("qwen3", *held) for held in HELD[1:])),
        *sweep(*(("smollm3", *held) for held in HELD if held != (4, "int8"))),
    ],
)
def test_every_form_and_any_number_of_threads_gives_the_same_bits(
    name: str, bits: int, kv: str, pack: Pack
) -> None:
    packed = pack(name, bits)
    tokens = said(150, packed.frame.vocabulary)
    assert_every_way_gives_the_same_bits(
        packed, lambda step, cache: talk(by(step), cache, tokens), budget=48, kv=kv
    )


@pytest.mark.parametrize(
    ("name", "bits", "kv"),
    [
        *(("llama", 8, "auto"), ("llama", 4, "int8"), ("olmoe", 4, "auto"), ("qwen3_moe", 8, "auto")),
        *(("mistral", 8, "auto"), ("qwen3", 8, "auto")),
        *sweep(("llama", 4, "auto")),
    ],
)
def test_rows_are_what_each_is_alone(name: str, bits: int, kv: str, pack: Pack) -> None:
    """Sixteen rows of different age, of which some wait at every step: bit for bit.

    What each is alone goes on from what is taken of them, without a prompt that would tell of windows.
    """
    packed = pack(name, bits)
    step, rows = NativeStep(packed, 2), 16
    together = cache_of(packed, 32, kv=kv)
    alone = [cache_of(packed, 32, kv=kv) for _ in range(rows)]
    ages = torch.randint(4, CHUNK, (rows,), generator=torch.Generator().manual_seed(1)).tolist()
    prompts = [said(age, packed.frame.vocabulary, seed) for seed, age in enumerate(ages)]
    columns = max(ages)
    real = torch.arange(columns) >= torch.tensor([columns - age for age in ages])[:, None]
    together.prepare(Step(columns, prompt=True, real=real))
    padded = torch.tensor([[0] * (columns - len(prompt)) + prompt for prompt in prompts])
    step.feed(together, padded, all_columns=False)
    for row, cache in enumerate(alone):
        cache.restore(together.take_row(row))
    for at in range(80):
        tokens = said(rows, packed.frame.vocabulary, 100 + at)
        goes = torch.tensor([(at + row) % 5 > 0 for row in range(rows)])
        together.prepare(Step(1, prompt=False, real=goes[:, None]))
        logits = step.feed(together, torch.tensor(tokens)[:, None], all_columns=False)
        for row in range(rows):
            if goes[row]:
                mine = talk(by(step), alone[row], tokens[row : row + 1], 0)[-1]
                assert torch.equal(mine[0], logits[row, 0]), (at, row)
    for row, cache in enumerate(alone):
        for a, b in zip(cache.take_row(0).parts, together.take_row(row).parts, strict=True):
            for state, numbers in a.states.items():
                assert torch.equal(numbers, b.states[state]), (row, state)


def test_numbers_are_fp32_whatever_torch_makes(pack: Pack) -> None:
    """A caller may have set another dtype for new tensors."""
    packed, found = pack("llama", 8), []
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        cache = cache_of(packed, 40)
        torch.set_default_dtype(dtype)
        try:
            found.append(talk(by(NativeStep(packed, 1)), cache, said(100, packed.frame.vocabulary)))
        finally:
            torch.set_default_dtype(torch.float32)
    for one in found[1:]:
        assert all(torch.equal(*both) for both in zip(one, found[0], strict=True))


@pytest.mark.parametrize("token", [-1, 200])
@pytest.mark.parametrize("before", [0, 30])
def test_a_token_that_the_model_does_not_have_is_refused(token: int, before: int, pack: Pack) -> None:
    """Nothing is read beyond the embedding; at the first step and after others."""
    packed = pack("llama", 8)
    step, cache = NativeStep(packed, 1), cache_of(packed, 40)
    talk(by(step), cache, said(before, packed.frame.vocabulary))
    with pytest.raises(UsageError, match="none of the model's 200"):
        talk(by(step), cache, [token], 0)


@pytest.mark.parametrize("name", ["llama", "llama, 40 numbers"])
@pytest.mark.parametrize("prompt", [1, CHUNK])
def test_an_overflow_is_that_conversations_alone(name: str, prompt: int, pack: Pack) -> None:
    packed = pack(name, 8)
    step, tokens = NativeStep(packed, 1), said(30, packed.frame.vocabulary)
    expected, broken = talk(by(step), cache_of(packed, 40), tokens, prompt), cache_of(packed, 40)
    talk(by(step), broken, tokens)
    for arena in broken.current_arenas():
        arena.slots.values.fill_(3e38)
    assert bool(talk(by(step), broken, [5], 0)[-1].isnan().any())
    found = talk(by(step), cache_of(packed, 40), tokens, prompt)
    assert all(torch.equal(*both) for both in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("activations", "bits", "count"),
    [(True, 8, 250), *sweep((True, 8, 1000), (True, 4, 1000), (False, 8, 1000), (False, 4, 1000))],
)
def test_kept_sets_are_those_of_torch(activations: bool, bits: int, count: int, shared_models: Path) -> None:
    """A real model, 64 slots, up to 1,000 tokens fed: of those that may go or stay at least 99.9% are the
    same with weights of 8 bits, 98% with 4.

    Beside torch that rounds activations as well, and beside torch that leaves them in fp32.
    """
    folder = shared_models / "stories3m"
    packed = packed_for(folder, bits, lambda *_: None)
    ours, theirs = cache_of(packed, 64), cache_of(packed, 64)
    tokens = said(count, packed.frame.vocabulary)
    compute, twins = by(NativeStep(packed, 2)), by_model(twin(folder, packed, torch.float32, activations))
    same = whole = 0
    for at, token in enumerate(tokens):
        talk(compute, ours, [token], 0 if at else 1)
        talk(twins, theirs, [token], 0 if at else 1)
        shares = ours.plan.shares
        for layer in range(packed.frame.layers):
            for a, b in zip(ours.kept(layer)[0].tolist(), theirs.kept(layer)[0].tolist(), strict=True):
                mine, other = ({p for p in one if shares.sinks <= p <= at - shares.recent} for one in (a, b))
                same, whole = same + len(mine & other), whole + len(other)
    assert same >= (0.999 if bits == 8 else 0.98) * whole
