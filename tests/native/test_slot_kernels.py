"""Transformers' step has the library compare, find changes and attend: as torch does, or torch does it."""

import sys
from ctypes import CFUNCTYPE, c_int, c_uint, c_void_p, cast
from typing import Any

import pytest
import torch
from sweep import sweep
from tiny_models import VOCAB, tiny
from torch import Tensor

from h2o_chat.cache.attention import Attended, LayerStep
from h2o_chat.cache.clock import Pass
from h2o_chat.cache.eviction import TORCH, Kernels
from h2o_chat.cache.forward_call import Step
from h2o_chat.models.fits import Sizes, sizes_of
from h2o_chat.native import library
from h2o_chat.native.slot_kernels import slot_kernels
from h2o_chat.policies.policies import Slots, output_change_of_heads
from h2o_chat.transformers_cache.cache import H2OCache
from h2o_chat.transformers_cache.probe import probe

pytestmark = pytest.mark.usefixtures("compiled")

HEADS_OF_16 = {"hidden_size": 64}


class Watched:
    """The kernels of a model, each held against torch's own."""

    def __init__(self, kernels: Kernels) -> None:
        self.mine, self.calls = kernels, {"output_change": 0, "attend": 0}

    def output_change(self, slots: Slots) -> Tensor:
        found = self.mine.output_change(slots)
        values = slots.dequantised(slots.states["values"]).float()
        exact = Slots(slots.budget, slots.layers, **slots.states | {"values": values})
        assert torch.allclose(output_change_of_heads(exact), found, rtol=2e-4, atol=1e-6)
        self.calls["output_change"] += 1
        return found

    def attend(self, here: LayerStep, this_pass: Pass, *new: Tensor) -> Attended:
        assert self.mine.attend is not None
        output, found = self.mine.attend(here, this_pass, *new)
        if here.window is not None:  # torch's own
            return output, found
        exact, wanted = here.attended(this_pass, *(one.float() for one in new))
        rounded = 2**-8 if output.dtype == torch.bfloat16 else 2e-5
        torch.testing.assert_close(output.float(), exact, atol=2e-5, rtol=rounded)
        torch.testing.assert_close(found.gains, wanted.gains, atol=2e-5, rtol=2e-5)
        assert found.keys is new[1], "what is stored is as the model computed it"
        assert found.values is new[2]
        self.calls["attend"] += 1
        return output, found


class Alone(library.Lender):
    """Gives one thread, whatever it is asked for."""

    def __init__(self) -> None:
        self.keep = (
            CFUNCTYPE(None, CFUNCTYPE(None, c_void_p), c_void_p, c_uint, c_uint)(
                lambda work, data, *_: work(data)
            ),
            CFUNCTYPE(c_int)(lambda: 0),
            CFUNCTYPE(c_int)(lambda: 1),
        )
        super().__init__(*(cast(function, c_void_p) for function in self.keep))


def llama(dtype: torch.dtype = torch.float32) -> Any:
    return tiny("llama", "h2o", dtype, **HEADS_OF_16)


def kernels_of(model: Any, **sizes: int) -> Kernels:
    """For a model, whose sizes may be said to be others."""
    said = Sizes(**vars(sizes_of(model.config)) | sizes)
    return slot_kernels(said, probe(model).ropes, model.dtype)


@torch.inference_mode()
def talk(model: Any, kernels: Kernels, kv: str = "auto") -> H2OCache:
    """A prompt and 40 tokens through 40 slots."""
    cache = H2OCache(40, positions=probe(model), observe=True, kv=kv)
    torch.manual_seed(1)
    for tokens in (70, *[1] * 40, 33):
        cache.prepare(Step(tokens, prompt=tokens > 1, kernels=kernels))
        ids = torch.randint(1, VOCAB, (1, tokens))
        model(ids, position_ids=cache.position_ids(), past_key_values=cache, use_cache=True)
    return cache


@pytest.mark.parametrize(
    ("family", "dtype", "kv"),
    [
        ("llama", "float32", "auto"),
        ("llama", "bfloat16", "auto"),
        ("gpt_neox", "float32", "auto"),
        ("llama", "float32", "int8"),
        ("gpt_oss", "float32", "auto"),
        *sweep(("qwen2", "bfloat16", "auto"), ("smollm3", "float32", "auto"), ("opt", "float32", "auto")),
    ],
)
def test_it_finds_what_torch_finds(family: str, dtype: str, kv: str) -> None:
    """Whole and partial rotations, none at all; a key in half precision; keys in bytes; learned sinks."""
    model = tiny(family, "h2o", getattr(torch, dtype), **HEADS_OF_16)
    watched = Watched(kernels_of(model))
    assert watched.mine != TORCH
    talk(model, Kernels(watched.output_change, watched.attend), kv)
    assert min(watched.calls.values()) > 3


def assert_same_scores(model: Any, one: Kernels, other: Kernels) -> None:
    """Slots are given the same scores, bit for bit."""
    caches = [talk(model, kernels).current_arenas() for kernels in (one, other)]
    for mine, others in zip(*caches, strict=True):
        assert torch.equal(mine.slots.score, others.slots.score)


@pytest.mark.parametrize("sizes", [{"heads": 8, "kv_heads": 4}, {"head_size": 32}], ids=str)
def test_layers_of_other_sizes_are_torchs(sizes: dict[str, int]) -> None:
    """A configuration may say one size for all, and some layers have another."""
    model = llama()
    kernels = kernels_of(model, **sizes)
    assert kernels != TORCH
    assert_same_scores(model, kernels, TORCH)


@pytest.mark.parametrize("family", ["gemma2", "mistral"])
def test_logits_of_another_kind_are_torchs(family: str) -> None:
    """They are bent, or a layer has a window; it attends as with torch alone, bit for bit."""
    model = tiny(family, "h2o", torch.float32, hidden_size=64, head_dim=16)
    kernels = kernels_of(model)
    assert kernels != TORCH
    assert_same_scores(model, Kernels(attend=kernels.attend), TORCH)


def test_any_threads_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of torch, as many as it has; one of the library's own where torch's are not known; and one where
    fewer come than are asked for."""
    model = llama()
    assert library.lender() is not None or sys.platform != "linux"
    before, caches = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        caches.append(talk(model, kernels_of(model)))
    for lender in (None, Alone()):
        monkeypatch.setattr(library, "lender", lambda lender=lender: lender)
        caches.append(talk(model, kernels_of(model)))
    torch.set_num_threads(before)
    first, *others = (cache.current_arenas()[0].slots.states for cache in caches)
    for other in others:
        assert all(torch.equal(state, other[name]) for name, state in first.items())


def test_torch_compares_where_the_library_cannot() -> None:
    assert kernels_of(llama(torch.float64)) == TORCH
    assert kernels_of(llama(), head_size=8) == TORCH
