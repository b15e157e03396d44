"""A GGUF file's weights in memory: the numbers of the file, and the tokens that torch computes with them."""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event, Timer
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import psutil
import pytest
import torch
import transformers
from gguf_files import Kind, called_in_file, numbers_in, write
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from laid_out import bytes_at, matrix, numbers_of
from making import silent
from sweep import sweep
from test_formula import compare
from test_step import assert_every_way_gives_the_same_bits, by, by_model, cache_of, said, talk
from tiny_models import tiny
from torch import Tensor
from twin import fused, round_activations

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ModelError
from h2o_chat.cache.forward_call import Step
from h2o_chat.models import gguf as gguf_header
from h2o_chat.models.fits import HEADROOM_BYTES, slot_bytes
from h2o_chat.models.gguf_config import EXACT
from h2o_chat.models.model_files import check_weights
from h2o_chat.native import library
from h2o_chat.native.gguf_frame import plain_frame
from h2o_chat.native.gguf_weights import GgufWeights
from h2o_chat.native.layout import LEVELS_BYTES, SCALES_BYTES, Matrix, MatrixAddress, parts
from h2o_chat.native.model_frame import Frame, frame_sizes
from h2o_chat.native.native_model import positions_of
from h2o_chat.native.probing import frame_of
from h2o_chat.native.rounding import rounded
from h2o_chat.native.step import NativeStep
from h2o_chat.native.weights_ahead import weights_ahead
from h2o_chat.transformers_cache.cache import H2OCache

pytestmark = pytest.mark.usefixtures("compiled")

FAMILIES = (
    *("llama", "qwen2", "qwen3", "smollm3", "qwen3_moe", "olmoe", "gpt_oss"),
    *("gemma2", "gemma3_text", "phi3", "olmo2", "granite"),
)
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "head_dim": 32,
    "vocab_size": 320,
}
"""All columns come in the blocks of 256 of K types, and a head is not hidden_size / heads wide."""
_YARN = {
    **{"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
    **{"rope_theta": 10000.0, "original_max_position_embeddings": 64},
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
_NEAR_AND_FAR = {
    **{"query_pre_attn_scalar": 32, "sliding_window": 16},
    "layer_types": ["sliding_attention", "full_attention"],
}
MORE: dict[str, dict[str, Any]] = {
    "qwen2": {"layer_types": ["full_attention"] * 2},
    "qwen3": {"layer_types": ["full_attention"] * 2},
    "qwen3_moe": _EXPERTS | {"moe_intermediate_size": 256, "norm_topk_prob": True},
    "olmoe": _EXPERTS | {"head_dim": 64},
    "gpt_oss": _EXPERTS | {"sliding_window": 16, "max_position_embeddings": 2048, "rope_parameters": _YARN},
    "gemma2": _NEAR_AND_FAR,
    "gemma3_text": _NEAR_AND_FAR,
    "phi3": {"sliding_window": None, "pad_token_id": 0},
    "granite": {"attention_multiplier": 0.2, "logits_scaling": 3.0},
    "smollm3": {"num_hidden_layers": 5, "no_rope_layers": [1, 1, 1, 0, 1], "pad_token_id": 0},
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of a random model of a family, made once."""

    @functools.cache
    def folder(family: str, tied: bool = False, scale: float = 0.12) -> Path:
        sizes: dict[str, Any] = SIZES | {"tie_word_embeddings": tied, "use_sliding_window": False}
        made = tmp_path_factory.mktemp(family)
        model = tiny(family, "eager", torch.float32, scale=scale, **sizes | MORE.get(family, {}))
        model.save_pretrained(made)
        return made

    return folder


@pytest.fixture
def gguf_of(folders: Any, tmp_path: Path) -> Callable[..., Path]:
    """Writes the file of a random model: its family, the type of its weights, what else `write` takes."""
    return lambda family="llama", kind="Q4_K", **more: write(
        folders(family), tmp_path / "model.gguf", kind, **more
    )


CROSSED: list[Any] = [
    *(("llama", kind) for kind in EXACT),
    *((family, "Q4_K") for family in FAMILIES[1:]),
    ("gpt_oss", "MXFP4"),
    *sweep(*((family, kind) for family in FAMILIES[1:] for kind in EXACT if kind != "Q4_K")),
]
"""Every family with every type; `make test` has one family with all types, and all with one."""


def opened(file: Path) -> GgufWeights:
    frame = plain_frame(file) or frame_of(file)
    assert isinstance(frame, Frame)
    weights = GgufWeights(file, frame)
    weights.begin()
    weights.finish(frame, silent)
    return weights


def dequantised(file: Path, folder: Path) -> dict[str, Tensor]:
    """The numbers of a file by transformers' names: no code of ours."""
    return {name: torch.from_numpy(np.array(one)) for name, one in numbers_in(file, folder).items()}


def in_torch(folder: Path, file: Path) -> Any:
    """A transformers model with the numbers of a file.

    Activations are rounded as by the native step, to two bytes beside Q8_0, else to one.
    """
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    model = model.float()
    missing, unknown = model.load_state_dict(fused(dequantised(file, folder)), strict=False)
    assert not unknown
    assert set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    kinds = {one.name: one.tensor_type for one in gguf.GGUFReader(file).tensors}

    def bits_of(name: str) -> int:
        return 8 if kinds.get(called_in_file(name), kinds["token_embd.weight"]) == Kind.Q8_0 else 4

    round_activations(model, bits_of)
    return model.eval()


@torch.inference_mode()
def by_step(packed: GgufWeights, ids: list[int], more: int, form: str = "") -> tuple[list[int], Tensor]:
    """The native step reads ids one by one: (so many likeliest tokens after them, logits [N, V])."""
    cache = H2OCache(len(ids) + more + 1, policy="full", positions=positions_of(packed.frame, chats=True))
    step, found, logits = NativeStep(packed, 1, form), list(ids), []
    for at in range(len(ids) + more):
        cache.prepare(Step(1))
        logits.append(step.feed(cache, torch.tensor([[found[at]]]), all_columns=False)[0, -1])
        if at + 1 >= len(found):
            found.append(int(logits[-1].argmax()))
    return found[len(ids) : len(ids) + more], torch.stack(logits)


MIXED = {"attn_v": "Q6_K", "attn_k": "Q8_0", "ffn_up": "Q5_1", "ffn_down": "Q5_K"}
"""Types of one layer that do not go together: q, k and v, and gate and up, become matrices of their own."""
KINDS: list[tuple[str, dict[str, str]]] = [
    *((kind, {}) for kind in EXACT),
    *(("Q4_K", MIXED), ("Q4_1", {"attn_q": "Q8_0"})),
]
"""All types of weights, and some together."""
OF_EXPERTS = [("Q4_K", mixed) for mixed in ({}, MIXED, {"ffn_down_exps": "Q6_K"}, {"_exps": "MXFP4"})]
"""Types of the matrices of experts and of those beside them."""


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("family", "kind"), CROSSED)
def test_every_number_is_that_of_the_file(
    family: str, kind: str, tied: bool, folders: Any, tmp_path: Path
) -> None:
    """To the last bit: levels, scales, minima, the order of rows."""
    folder = folders(family, tied)
    file = write(folder, tmp_path / "model.gguf", kind, mixed={"blk.1.attn_v": "Q6_K"})
    weights, own = opened(file), dequantised(file, folder)
    assert weights.frame.tied == tied
    for part in parts(weights.frame):
        expected = torch.cat([own[one.name][one.start :][: one.rows] for one in part.sources])
        if isinstance(part, Matrix):
            assert torch.equal(matrix(weights, part), expected), part.name
        else:
            found = bytes_at(weights.vector(part.name), 4 * part.numbers).view(torch.float32)
            assert torch.equal(found, (expected.flatten() + part.plus) / part.over), part.name


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        *(("llama", kind) for kind in ("F16", "F32", "BF16", "IQ4_NL", "Q2_K")),
        *(("qwen3_moe", "F16"), ("gpt_oss", "BF16"), ("phi3", "F16")),
    ],
)
def test_other_types_are_rounded_to_eight_bits(family: str, kind: str, folders: Any, tmp_path: Path) -> None:
    folder = folders(family)
    file = write(folder, tmp_path / "model.gguf", "F32" if kind in ("IQ4_NL", "Q2_K") else kind)
    if kind in ("IQ4_NL", "Q2_K"):
        put_blocks(file, kind)
    weights, own = opened(file), dequantised(file, folder)
    for part in parts(weights.frame):
        if isinstance(part, Matrix):
            whole = torch.cat([own[one.name][one.start :][: one.rows] for one in part.sources])
            q, scales = rounded(whole, 8)
            numbers = q.view(*scales.shape, 32) * scales.float().unsqueeze(-1)
            assert torch.equal(matrix(weights, part), numbers.flatten(1)), part.name


def put_blocks(file: Path, kind: str) -> None:
    """Makes one matrix of a file of F32 random blocks of a type for which the package has no quantiser."""
    sizes, blocks = {"IQ4_NL": (32, 18), "Q2_K": (256, 84)}[kind], Random(5)
    raw = bytearray(file.read_bytes())
    header = gguf_header.header_of(file)
    stored = header.tensors["blk.0.ffn_down.weight"]
    count = stored.shape[0] * stored.shape[1] // sizes[0]
    data = bytearray(blocks.randbytes(count * sizes[1]))
    for at in range(count):
        scales = {"IQ4_NL": (0,), "Q2_K": (80, 82)}[kind]
        for offset in scales:  # small and finite
            data[at * sizes[1] + offset : at * sizes[1] + offset + 2] = np.float16(0.01).tobytes()
    raw[stored.start : stored.start + len(data)] = data
    name = b"blk.0.ffn_down.weight"
    place = raw.index(name) + len(name) + 4 + 16
    raw[place : place + 4] = int(Kind[kind]).to_bytes(4, "little")
    file.write_bytes(raw)
    gguf_header.forget()


@pytest.mark.parametrize(
    ("family", "kind", "mixed"),
    [
        *(("llama", *kind) for kind in KINDS),
        *((family, *kind) for family in ("qwen3_moe", "olmoe", "gpt_oss") for kind in OF_EXPERTS),
    ],
)
def test_a_token_is_the_formula(
    family: str, kind: str, mixed: dict[str, str], gguf_of: Callable[..., Path]
) -> None:
    compare(opened(gguf_of(family, kind, mixed=mixed)), budget=24, before=12, count=16)


@pytest.mark.parametrize(("kind", "mixed"), KINDS)
def test_every_form_gives_the_same_bits(
    kind: str, mixed: dict[str, str], gguf_of: Callable[..., Path]
) -> None:

    def read(step: NativeStep, cache: H2OCache) -> list[Tensor]:
        prompts = [talk(by(step), cache, said(count, 320, count), count) for count in (1, 40, 2, 7, 16, 9)]
        logits = [logits[-1] for logits in prompts] + talk(by(step), cache, said(20, 320), 0)
        assert all(bool(one.isfinite().all()) for one in logits)
        return logits

    family = {0: "qwen2", 1: "gpt_oss"}.get(len(mixed), "olmoe")
    assert_every_way_gives_the_same_bits(opened(gguf_of(family, kind, mixed=mixed)), read, budget=64)


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_are_those_of_torch(family: str, folders: Any, tmp_path: Path) -> None:
    folder = folders(family)
    file = write(folder, tmp_path / "model.gguf", "Q8_0")
    model, ids = in_torch(folder, file), [5, 17, 200, 3]
    answer = by_step(opened(file), ids, 24)[0]
    with torch.inference_mode():
        likeliest = model(torch.tensor([ids + answer])).logits[0, len(ids) - 1 : -1].argmax(1)
    assert answer == likeliest.tolist()


@pytest.mark.parametrize(("family", "kind"), CROSSED)
def test_logits_are_those_of_torch(family: str, kind: str, folders: Any, tmp_path: Path) -> None:
    """Equal but for fp32, unless an activation lies so near a half that fp32 rounds it to the other side.

    Of twelve conversations of three tokens: what was rounded otherwise stays in keys and values.
    """
    folder = folders(family)
    # olmo2 multiplies its embedding as it is: of 16 or 32 levels some lie at a half of an activation's steps.
    file = write(folder, tmp_path / "model.gguf", kind, ends="Q4_K" if family == "olmo2" else None)
    model, weights = in_torch(folder, file), opened(file)
    ids = torch.randint(1, 320, (12, 3), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        theirs = model(ids).logits
    ours = torch.stack([by_step(weights, one.tolist(), 0)[1] for one in ids])
    off = ((ours - theirs).abs().amax(2) / theirs.abs().max()).flatten().sort().values
    assert off[: len(off) // 4].max() < (1e-4 if kind == "Q8_0" else 1e-5)
    assert off.max() < 0.05


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "olmoe", "gpt_oss"])
def test_a_prompt_is_that_of_torch(family: str, folders: Any, tmp_path: Path) -> None:
    """Sixteen prompts of 24 tokens: logits of the last one, as in `test_logits_are_those_of_torch`."""
    folder = folders(family, scale=0.05)
    file = write(folder, tmp_path / "model.gguf", "Q8_0")
    model, weights = in_torch(folder, file), opened(file)
    off = []
    for seed in range(16):
        ids = said(24, 320, seed)
        with torch.inference_mode():
            theirs = model(torch.tensor([ids])).logits[0, -1]
        [ours] = talk(by(NativeStep(weights, 1)), cache_of(weights, 64), ids, 24)
        off.append(float((ours[0] - theirs).abs().max() / theirs.abs().max()))
    assert sorted(off)[4] < 1e-4
    assert max(off) < 0.05


def test_gpt_oss_keeps_what_transformers_keeps(folders: Any, tmp_path: Path) -> None:
    """At 24 slots, after a prompt of 12 tokens and 40 more: in two of three conversations at least.

    In the other one two slots may have been as good as even, or two experts. Families that are packed too:
    `test_it_computes_what_torch_computes`.
    """
    folder = folders("gpt_oss", scale=0.05)
    file = write(folder, tmp_path / "model.gguf", "Q8_0")
    model, weights = in_torch(folder, file), opened(file)
    model.set_attn_implementation("h2o")
    same = 0
    for seed in range(3):
        caches = cache_of(weights, 24), cache_of(weights, 24)
        for compute, cache in zip((by(NativeStep(weights, 1)), by_model(model)), caches, strict=True):
            talk(compute, cache, said(52, 320, seed), 12)
        layers = range(weights.frame.layers)
        kept = [[cache.kept(layer).sort().values for layer in layers] for cache in caches]
        assert all(len(one.unique()) < 52 for one in kept[0])
        same += all(torch.equal(*both) for both in zip(*kept, strict=True))
    assert same >= 2


def test_the_least_number_of_a_byte(gguf_of: Callable[..., Path]) -> None:
    """-128, which no quantiser writes and a file may hold, is computed with by every form."""
    file = gguf_of(kind="Q8_0")
    reader = gguf.GGUFReader(file, "r+")
    for tensor in reader.tensors:
        if tensor.tensor_type == Kind.Q8_0:
            tensor.data[:, 2] = 128
            tensor.data[:, 3] = 127
    reader.data.flush()
    weights = opened(file)
    [out] = [part for part in parts(weights.frame) if part.name == "layers.0.out"]
    assert isinstance(out, Matrix)
    assert float(matrix(weights, out)[:, 0].max()) < 0
    logits = [by_step(weights, [5, 17, 200, 3], 4, form)[1] for form in library.forms()]
    assert all(torch.equal(logits[0], one) for one in logits)


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1", "Q4_K", "Q6_K", "F16"])
@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_a_scale_that_is_no_number(kind: str, number: str, gguf_of: Callable[..., Path]) -> None:
    file = gguf_of(kind=kind)
    reader = gguf.GGUFReader(file, "r+")
    [tensor] = [one for one in reader.tensors if one.name == "blk.1.ffn_up.weight"]
    at = 208 if kind == "Q6_K" else 2 if kind in ("Q4_1", "Q4_K") else 0
    bad = np.frombuffer(np.float16(number).tobytes(), np.uint8)
    tensor.data.view(np.uint8)[3, at : at + 2] = bad
    reader.data.flush()
    with pytest.raises(ModelError, match=r"model.layers.1.mlp.up_proj.weight holds NaN or infinity"):
        opened(file)


def test_a_file_that_shrinks_while_it_is_read(
    gguf_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = gguf_of()
    size, real = file.stat().st_size, library.library

    def cut() -> Any:
        os.truncate(file, size // 2)
        return real()

    monkeypatch.setattr(library, "library", cut)
    with pytest.raises(ModelError, match=r"cut short|was changed"):
        opened(file)


def test_a_file_that_is_replaced_while_torch_is_imported(gguf_of: Callable[..., Path]) -> None:
    file = gguf_of()
    frame = plain_frame(file)
    assert frame is not None
    weights = GgufWeights(file, frame)
    weights.begin()
    with pytest.raises(ModelError, match="was changed"):
        weights.finish(replace(frame, vocabulary=frame.vocabulary + 1), silent)
    os.utime(file, ns=(0, 0))
    with pytest.raises(ModelError, match="was changed"):
        weights.finish(frame, silent)
    weights.give_up()


def test_weights_are_laid_out_before_torch_is_there(gguf_of: Callable[..., Path]) -> None:
    """Whoever opens the model later gets the same bytes."""
    file = gguf_of()
    script = """
import sys
from pathlib import Path
from h2o_chat.base.config import Settings
from h2o_chat.native.weights_ahead import weights_ahead
file = Path(sys.argv[1])
with weights_ahead(file, Settings(model=str(file), device="cpu")) as ahead:
    assert ahead is not None
    ahead.finish(ahead.frame, lambda *_: None)
    assert "torch" not in sys.modules
    sys.stdout.buffer.write(bytes(ahead._memory))
"""
    before = subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, check=True).stdout
    assert before == bytes(opened(file)._memory)


def ahead_of(file: Path, **chosen: Any) -> bool:
    with weights_ahead(file, Settings(model=str(file), **chosen)) as ahead:
        return ahead is not None


def test_nothing_is_laid_out_for_another_step(
    gguf_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = gguf_of()
    for chosen in ({"engine": "transformers"}, {"engine": "graph"}, {"quantize": "nf4"}, {"device": "cuda"}):
        assert not ahead_of(file, **chosen)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert not ahead_of(file, engine="native")
    assert ahead_of(file, device="cpu")


def test_what_does_not_fit_is_not_laid_out(
    gguf_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it counts: an F16 file takes half of its bytes, slots take more."""
    file = gguf_of(kind="F16")
    weights = check_weights(file)
    frame = plain_frame(file)
    assert frame is not None
    need = weights.held_bytes + 513 * slot_bytes(frame_sizes(frame), 4, "auto") + HEADROOM_BYTES
    for free in (need - 1, need):
        monkeypatch.setattr(psutil, "virtual_memory", lambda free=free: SimpleNamespace(available=free))
        assert ahead_of(file, device="cpu", budget=512) == (free == need)


def test_weights_that_nobody_waits_for_are_given_up(
    gguf_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, goes_on, real = gguf_of(), Event(), library.library
    monkeypatch.setattr(library, "library", lambda: goes_on.wait() and real())
    with weights_ahead(file, Settings(device="cpu")) as ahead:
        assert ahead is not None
        Timer(0.2, goes_on.set).start()
    assert any(result.cancelled() for _, result in ahead._laid_out)
    assert ahead._memory.closed


@examples(max_examples=100, deadline=None)
@given(data=st.data(), kind=st.sampled_from(EXACT), blocks=st.integers(1, 3), rows=st.integers(1, 40))
def test_blocks_of_any_bytes(data: st.DataObject, kind: str, blocks: int, rows: int) -> None:
    """Any levels and scales in any order of rows: the package's numbers, or a word that a scale is none."""
    numbers, size = gguf.GGML_QUANT_SIZES[Kind[kind]]
    seed = data.draw(st.integers(0, 2**32 - 1))
    raw = np.frombuffer(Random(seed).randbytes(rows * blocks * size), np.uint8).reshape(rows, -1)
    order = data.draw(st.permutations(range(rows)))
    kind_number, tiles, columns = int(Kind[kind]), -(-rows // 16), blocks * numbers
    groups = tiles * columns // 32
    levels = np.zeros(groups * LEVELS_BYTES[kind_number], np.uint8)
    scales = np.zeros(groups * SCALES_BYTES[kind_number], np.uint8)
    loaded = library.library()
    assert loaded is not None
    said = loaded.h2o_lay_out(
        *(kind_number, columns, tiles, 1, raw.ctypes.data),
        *(library.int32s(order + [-1] * (16 * tiles - rows)), levels.ctypes.data, scales.ctypes.data),
    )
    with np.errstate(all="ignore"):
        expected = torch.from_numpy(gguf.quants.dequantize(raw, Kind[kind]))[order]
    found = numbers_of(
        MatrixAddress(levels.ctypes.data, scales.ctypes.data, 16 * tiles, columns, kind_number)
    )
    assert bool(said) == (not bool(expected.isfinite().all()))
    assert said or torch.equal(found[:rows], expected)
    assert not bool(found[rows:].any())
