"""Attention of a prompt in the library, held against torch's (`cache/attention.py`)."""

from typing import Any

import pytest
import torch
from families import MODELS, Pack
from sweep import sweep
from test_step import assert_every_way_gives_the_same_bits, cache_of, said
from torch import Tensor

from h2o_chat.cache.attention import Attended, LayerStep
from h2o_chat.cache.clock import Pass
from h2o_chat.cache.forward_call import Step
from h2o_chat.native.native_model import positions_of
from h2o_chat.native.packed import Packed
from h2o_chat.native.slot_kernels import SlotKernels
from h2o_chat.native.step import NativeStep
from h2o_chat.transformers_cache.cache import H2OCache

pytestmark = pytest.mark.usefixtures("compiled")

LENGTHS = (30, 1, 57, 200, 90, 3, 150)
"""Tokens of the calls of a conversation: it fills its slots, clamps, and rebases."""


class Watched(SlotKernels):
    """Computes each pass in torch too; counts what the passes had."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.passes, self.clamped, self.windows, self.held = 0, 0, 0, 0

    def attend(
        self, here: LayerStep, this_pass: Pass, queries: Tensor, keys: Tensor, values: Tensor
    ) -> Attended:
        output, new = super().attend(here, this_pass, queries, keys, values)
        twin_output, twin = here.attended(this_pass, queries, keys, values)
        mine, wanted = (
            {"output": out, "keys": one.keys, "values": one.values, **one.gains}
            for out, one in ((output, new), (twin_output, twin))
        )
        torch.testing.assert_close(mine, wanted, atol=2e-5, rtol=2e-5)
        self.passes += 1
        self.clamped += bool(here.arena.clamps and here.arena.slots.clamped[here.at].any())
        self.windows += here.window is not None
        self.held += sum(this_pass.in_use)
        return output, new


def watched(packed: Packed, threads: int) -> tuple[NativeStep, Watched]:
    step = NativeStep(packed, threads)
    step.slot_kernels = seen = Watched(step.slot_kernels.model, packed.frame.head_size)
    return step, seen


@torch.inference_mode()
def read(
    step: NativeStep, cache: H2OCache, vocabulary: int, lengths: tuple[int, ...] = LENGTHS
) -> list[Tensor]:
    """Logits after each call."""
    found = []
    for seed, tokens in enumerate(lengths):
        cache.prepare(Step(tokens, prompt=True))
        ids = torch.tensor([said(tokens, vocabulary, seed)])
        found.append(step.feed(cache, ids, all_columns=False))
    return found


@pytest.mark.parametrize(
    ("name", "kv"),
    [*((name, "auto") for name in MODELS), ("llama", "int8"), *sweep(*((n, "int8") for n in [*MODELS][1:]))],
)
def test_it_attends_as_torch_does(name: str, kv: str, pack: Pack) -> None:
    """Slots that are empty, clamped or out of a layer's window; query heads that share a KV head."""
    packed = pack(name, 8)
    (step, seen), cache = watched(packed, 2), cache_of(packed, 40, kv=kv)
    read(step, cache, packed.frame.vocabulary)
    assert seen.passes > 3 * len(LENGTHS)
    assert seen.held > 0
    assert cache.clocks[0].rope_origin > 0
    assert seen.clamped > 0 or all(packed.frame.sees), "what is out of a layer's window is given up first"
    assert (seen.windows > 0) == any(packed.frame.sees)


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_rows_of_different_length_are_what_each_is_alone(name: str, pack: Pack) -> None:
    """Real tokens stand in front, padding gives nothing: bit for bit, where the passes are the same."""
    packed = pack(name, 8)
    (step, _), lengths = watched(packed, 2), (24, 7, 1, 19)
    together = cache_of(packed, 64)
    alone = [cache_of(packed, 64) for _ in lengths]
    for call in range(2):
        columns = max(lengths)
        real = torch.arange(columns) >= torch.tensor([columns - length for length in lengths])[:, None]
        tokens = torch.tensor(said(len(lengths) * columns, packed.frame.vocabulary, call)).view(-1, columns)
        together.prepare(Step(columns, prompt=True, real=real))
        logits = step.feed(together, tokens, all_columns=False)
        for row, (cache, length) in enumerate(zip(alone, lengths, strict=True)):
            if length == 1:  # a single token is decoded, which adds up in another order
                continue
            cache.prepare(Step(length, prompt=True))
            mine = step.feed(cache, tokens[row : row + 1, -length:], all_columns=False)
            assert torch.equal(mine[0], logits[row]), (call, row)


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_forms_and_threads_give_the_same_bits(name: str, pack: Pack) -> None:
    packed = pack(name, 4)
    assert_every_way_gives_the_same_bits(
        packed, lambda step, cache: read(step, cache, packed.frame.vocabulary), budget=40
    )


def test_the_whole_prompt_at_once_and_a_cache_without_a_bound(pack: Pack) -> None:
    """`prefill="full"`, and `full`, whose slots grow."""
    packed = pack("llama", 8)
    positions = positions_of(packed.frame, chats=True)
    for options in ({"prefill": "full"}, {"policy": "full"}):
        step, seen = watched(packed, 2)
        cache = H2OCache(60, positions=positions, observe=True, **options)  # type: ignore[arg-type]
        read(step, cache, packed.frame.vocabulary, (70, 33, 130))
        assert seen.passes >= 3 * packed.frame.layers


@pytest.mark.parametrize(("policy", "computes"), [("h2o-paper", True), ("lru", False)])
def test_scores_of_the_lab_are_torchs(policy: str, computes: bool, pack: Pack) -> None:
    """The library knows no score but attention received."""
    packed = pack("llama", 8)
    (step, seen), cache = watched(packed, 1), cache_of(packed, 40, policy)
    read(step, cache, packed.frame.vocabulary, (50, 30))
    assert (seen.passes > 0) == computes
