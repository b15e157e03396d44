"""GGUF files: their configuration, how their weights are held, and what does not fit together."""

import math
from array import array as library_array
from pathlib import Path
from typing import Any

import gguf as library
import gguf_files
import numpy as np
import pytest
import torch
import transformers
from gguf_files import write
from gguf_tiny import CHANGES, FULL, folder_of
from safetensors.torch import load_file

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ModelError, UsageError
from h2o_chat.engine.engine import Engine
from h2o_chat.models import gguf, load
from h2o_chat.models.file_identity import fingerprint
from h2o_chat.models.gguf_config import config_of
from h2o_chat.models.model_files import check_weights, read_config
from h2o_chat.native import library as native_library
from h2o_chat.native.gguf_frame import plain_frame
from h2o_chat.native.native_model import LoadedNative, open_model, quantization_of
from h2o_chat.native.packed_file import place_of
from h2o_chat.native.probing import frame_of

READ = [
    *("llama", "qwen2", "qwen3", "smollm3", "qwen3_moe", "olmoe"),
    *("gemma2", "gemma3_text", "phi3", "olmo2", "granite"),
]
"""Families that the native step computes, without gpt_oss."""


@pytest.mark.parametrize("family", READ)
@pytest.mark.parametrize("tied", [True, False])
def test_the_frame_is_that_of_the_folder(family: str, tied: bool, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"rope_parameters": {"rope_type": "default", "rope_theta": 70000.0}}
    changes |= CHANGES.get(family, {})
    folder = folder_of(family, tmp_path / "model", tie_word_embeddings=tied, rms_norm_eps=2**-17, **changes)
    path = write(folder, tmp_path / "model.gguf", "F16")
    assert frame_of(path) == frame_of(folder)
    assert plain_frame(path) == (None if family == "phi3" else frame_of(folder))


@pytest.mark.parametrize(
    ("values", "rope"),
    [
        ({"type": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        (
            {"type": "yarn", "factor": 4.0, "original_context_length": 128},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
        ),
        ({"type": "none"}, {"rope_type": "default"}),
    ],
)
def test_scaled_rotations(values: dict[str, Any], rope: dict[str, Any], tmp_path: Path) -> None:
    folder = folder_of("qwen2", tmp_path / "model", rope_parameters=rope | {"rope_theta": 10000.0}, **FULL)
    values = {f"qwen2.rope.scaling.{key}": value for key, value in values.items()}
    path = write(folder, tmp_path / "model.gguf", "F16", values=values)
    ours, theirs = frame_of(path), frame_of(folder)
    assert ours.ropes == theirs.ropes


def test_the_long_rotation_of_phi3(tmp_path: Path) -> None:
    """Its factors are tensors; a part of a head is turned."""
    factors = {"short": [1 + 0.1 * pair for pair in range(12)], "long": [2.0 + pair for pair in range(12)]}
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}
    rope |= {f"{one}_factor": numbers for one, numbers in factors.items()}
    more = {"hidden_size": 128, "pad_token_id": 0, "original_max_position_embeddings": 256}
    folder = folder_of("phi3", tmp_path / "model", rope_parameters=rope, **more)
    values = {"phi3.rope.dimension_count": 24, "phi3.rope.scaling.original_context_length": 256}
    tensors = {
        f"rope_factors_{one}.weight": np.array(numbers, np.float32) for one, numbers in factors.items()
    }
    path = write(folder, tmp_path / "model.gguf", "F16", values=values, tensors=tensors)
    ours, theirs = frame_of(path), frame_of(folder)
    assert ours.window_tokens == theirs.window_tokens == 256
    assert ours.ropes[0].scale == theirs.ropes[0].scale > 1
    assert ours.ropes[0].inv_freq == pytest.approx(theirs.ropes[0].inv_freq, rel=1e-6)  # fp32 in the file


def test_rotations_and_caps_of_gemma3_as_ollama_names_them(tmp_path: Path) -> None:
    folder = folder_of("gemma3_text", tmp_path / "model", **CHANGES["gemma3_text"])
    values: dict[str, Any] = {"gemma3.rope.freq_base": None, "gemma3.rope.freq_base_swa": None}
    values |= {"gemma3.rope.global.freq_base": 1e6, "gemma3.rope.local.freq_base": 2e4}
    path = write(folder, tmp_path / "x.gguf", "F16", values=values | {"gemma3.final_logit_softcapping": 30.0})
    config = config_of(gguf.header_of(path))
    assert config["rope_parameters"]["full_attention"]["rope_theta"] == 1e6
    assert config["rope_parameters"]["sliding_attention"]["rope_theta"] == 2e4
    assert config["final_logit_softcapping"] == 30.0
    assert config["attn_logit_softcapping"] is None
    assert plain_frame(path) == frame_of(path)


def test_a_granite_file_that_names_no_scale_has_none(tmp_path: Path) -> None:
    folder = folder_of("granite", tmp_path / "model")
    scales = ("embedding_scale", "residual_scale", "attention.scale", "logit_scale")
    path = write(folder, tmp_path / "x.gguf", "F16", values={f"granite.{one}": None for one in scales})
    found = frame_of(path)
    assert (found.embedding_scale, found.residual_scale, found.logits_scale) == (1, 1, 1)
    assert found.attention_scale == pytest.approx(32**-0.5)


@pytest.mark.parametrize(
    ("family", "values", "factor", "said"),
    [
        ("phi3", {"phi3.rope.dimension_count": 64}, 1.0, "64 of the 32 numbers"),
        ("phi3", {}, 0.0, "a factor that is not above 0"),
        ("phi3", {}, math.nan, "a factor that is not above 0"),
        ("granite", {"granite.rope.scaling.finetuned": False}, None, "turns no keys"),
        ("llama", {}, 1.0, "tensors that a llama model has not"),
        ("olmoe", {"olmoe.expert_used_count": 7}, None, "a token takes 7 of 6 experts"),
    ],
)
def test_rotations_and_experts_that_are_refused(
    family: str, values: dict[str, Any], factor: float | None, said: str, tmp_path: Path
) -> None:
    folder = folder_of(family, tmp_path / "model", **CHANGES.get(family, {}))
    names = ["rope_factors_short.weight", "rope_factors_long.weight"] if factor is not None else []
    tensors = {name: np.full(16, factor, np.float32) for name in names}
    values = {f"{family}.rope.scaling.original_context_length": 256} | values
    path = write(folder, tmp_path / "x.gguf", "F16", values=values, tensors=tensors)
    with pytest.raises(ModelError, match=said):
        config_of(gguf.header_of(path))


def llama_3_factors(factor: float, size: int, theta: float) -> np.ndarray[Any, Any]:
    """The factors of llama.cpp's converter (conversion/llama.py, generate_extra_tensors)."""
    found = []
    for number in range(0, size, 2):
        length = 2 * math.pi * theta ** (number / size)
        if length < 8192 / 4:
            found.append(1.0)
        elif length > 8192:
            found.append(factor)
        else:
            smooth = (8192 / length - 1) / 3
            found.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(found, np.float32)


def test_the_rotation_of_llama_3(tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    folder = folder_of("llama", tmp_path / "model", rope_parameters=rope)
    factors = llama_3_factors(32.0, 32, 500000.0)
    path = write(folder, tmp_path / "model.gguf", "F16", tensors={"rope_freqs.weight": factors})
    assert frame_of(path).ropes == frame_of(folder).ropes
    factors[9] *= 1.1
    path = write(folder, tmp_path / "other.gguf", "F16", tensors={"rope_freqs.weight": factors})
    with pytest.raises(ModelError, match="scales its rotation in a way that is not known"):
        read_config(path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"values": {"llama.block_count": 3}}, "it lacks blk.2.attn_norm.weight"),
        ({"values": {"llama.block_count": 1}}, "9 tensors that a llama model has not"),
        ({"values": {"llama.block_count": 2**31 - 1}}, "2,147,483,647 layers in 21 tensors"),
        ({"values": {"llama.block_count": "two"}}, "llama.block_count is two, and a whole number"),
        ({"values": {"llama.block_count": None}}, "does not say llama.block_count"),
        ({"values": {"llama.embedding_length": 65}}, r"has the shape .* its values say"),
        ({"values": {"llama.attention.head_count": 3}}, "share 2 KV heads"),
        ({"values": {"llama.attention.layer_norm_rms_epsilon": float("nan")}}, "a number above 0 is needed"),
        ({"values": {"llama.rope.dimension_count": 16}}, "16 of the 32 numbers of a head"),
        (
            {"values": {"llama.rope.scaling.type": "longrope"}},
            r"in a way that is not known here \(longrope\)",
        ),
        ({"values": {"tokenizer.ggml.bos_token_id": 320}}, "bos_token_id is 320, and below 320 is needed"),
        (
            {"values": {"general.architecture": "gemma3", "gemma3.block_count": 2**31 - 1}},
            "2,147,483,647 layers in 21 tensors",  # transformers would make a list of them
        ),
        (
            {"values": {"general.architecture": "starcoder2", "starcoder2.rope.scaling.type": "linear"}},
            "has starcoder2.rope.scaling.type, which is not read",
        ),
        ({"leave_out": "ffn_up"}, "it lacks blk.0.ffn_up.weight"),
        ({"leave_out": "token_embd"}, "it lacks token_embd.weight"),
        ({"tensors": {"blk.0.ffn_gate_inp.weight": np.ones((2, 32))}}, "mixture of experts"),
        ({"tensors": {"blk.0.attn_norm_2.weight": np.ones(32)}}, "what they do is not known"),
    ],
)
def test_what_does_not_fit_together(changes: dict[str, Any], said: str, llama: Path, tmp_path: Path) -> None:
    path = write(llama, tmp_path / "bad.gguf", "F32", **changes)
    with pytest.raises(ModelError, match=said):
        read_config(path)


@pytest.mark.parametrize("made", ["rwkv9", "qwen3next", "qwen2moe", "falcon-h1", "deepseek2"])
def test_another_architecture_is_named(made: str, llama: Path, tmp_path: Path) -> None:
    path = write(llama, tmp_path / "x.gguf", "F32", values={"general.architecture": made})
    with pytest.raises(ModelError, match=f"'{made}'") as caught:
        load.check_family(path)
    assert "folder of safetensors" in caught.value.hint


def test_what_ends_an_answer(llama: Path, tmp_path: Path) -> None:
    """The end of a text and the end of a turn, whose number files often leave out."""
    path = write(llama, tmp_path / "x.gguf", "F32", values={"tokenizer.ggml.eot_token_id": 7})
    assert config_of(gguf.header_of(path))["eos_token_id"] == [0, 7]


def named(words: list[str], kinds: list[int], eos: int) -> dict[str, Any]:
    """Values of a vocabulary that begins with these words."""
    return {
        "tokenizer.ggml.tokens": words + [f"[{number}]" for number in range(320 - len(words))],
        "tokenizer.ggml.token_type": kinds + [1] * (320 - len(kinds)),
        "tokenizer.ggml.eos_token_id": eos,
    }


def test_the_end_of_a_thought_ends_no_answer(llama: Path, tmp_path: Path) -> None:
    """gpt-oss' `<|end|>` does, where `<|return|>` and `<|call|>` end answers; phi3's ends an answer."""
    words = ["<|end|>", "<|return|>", "<|call|>"]
    path = write(llama, tmp_path / "x.gguf", "F32", values=named(words, [3, 3, 3], 1))
    assert config_of(gguf.header_of(path))["eos_token_id"] == [1, 2]
    path = write(llama, tmp_path / "y.gguf", "F32", values=named(words[:2], [3, 3], 1))
    assert config_of(gguf.header_of(path))["eos_token_id"] == [1, 0]


@pytest.mark.parametrize(
    ("kind", "ends", "held"),
    [
        ("Q4_0", "Q8_0", "Q8_0, Q4_0"),
        ("Q8_0", "F16", "Q8_0, int8"),
        ("Q4_1", "Q4_1", "Q4_1"),
        ("F16", "F16", "int8"),
    ],
)
def test_held_as(kind: str, ends: str, held: str, llama: Path, tmp_path: Path) -> None:
    """Types of the file, those of most bytes first; `--quantize` does not change them."""
    path = write(llama, tmp_path / "x.gguf", kind, ends)
    weights = check_weights(path)
    assert set(weights.held_as.split(", ")) == set(held.split(", "))
    assert quantization_of(Settings(quantize="int4"), weights) == weights.held_as.split(", ")[0]
    assert weights.parameters == sum(
        one.numel() for one in transformers.AutoModelForCausalLM.from_pretrained(llama).parameters()
    )


@pytest.mark.skipif(bool(native_library.why_not()), reason="there is no native step")
@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "F16"])
def test_opened_in_memory(kind: str, llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to disk, a packed file of an earlier version goes, the bytes are those foretold."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write(llama, tmp_path / "x.gguf", kind)
    old = place_of(fingerprint(path), 8)
    old.parent.mkdir(parents=True)
    old.write_bytes(b"h2o-pack")
    loaded = open_model(Settings(model=str(path), quantize="int4"), lambda *_: None)
    assert isinstance(loaded, LoadedNative)
    assert not list(old.parent.iterdir())
    assert "--quantize int4 is left out" in loaded.packed.note
    assert loaded.quantization == check_weights(path).held_as.split(", ")[0]
    assert loaded.packed.bytes == pytest.approx(check_weights(path).held_bytes, rel=0.2)


@pytest.mark.skipif(bool(native_library.why_not()), reason="there is no native step")
@pytest.mark.parametrize("how", ["int4", "int8"])
def test_a_file_of_gpt_oss_keeps_its_bits(how: Any, tmp_path: Path) -> None:
    """Like any file of the native step, although none but this step reads it."""
    rope = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 64}
    turns = rope | {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, "rope_theta": 10000.0}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16, "rope_parameters": turns}
    folder = folder_of("gpt_oss", tmp_path / "model", max_position_embeddings=2048, **experts)
    path = write(folder, tmp_path / "x.gguf", "MXFP4")
    loaded = open_model(Settings(model=str(path), quantize=how), lambda *_: None)
    assert isinstance(loaded, LoadedNative)
    assert f"--quantize {how} is left out" in loaded.packed.note
    assert loaded.quantization == "MXFP4"


def assert_logits_are_those_of(folder: Path, loaded: Any, tolerance: float) -> None:
    """Those that transformers computes with the weights of a folder."""
    own = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=loaded.model.dtype)
    for model in (loaded.model, own):
        model.set_attn_implementation("eager")
        model.set_experts_implementation("eager")  # the others know no float64
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        assert torch.allclose(loaded.model(ids).logits, own(ids).logits, atol=tolerance)


@pytest.mark.parametrize("family", READ)
def test_transformers_computes_it_too(family: str, tmp_path: Path) -> None:
    changes = CHANGES.get(family, {}) | {
        "tie_word_embeddings": family == "gemma2"
    }  # it has no head of its own
    folder = folder_of(family, tmp_path / "model", **changes)
    path = write(folder, tmp_path / "model.gguf", "F32")
    loaded = load.load(Settings(model=str(path), dtype="float64"), lambda *_: None)
    assert_logits_are_those_of(folder, loaded, 1e-6)
    assert loaded.model.generation_config.eos_token_id == [0]


def test_a_family_without_a_native_step(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """transformers reads starcoder2 by itself."""
    path = tmp_path / "starcoder2.gguf"
    made = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 320}
    made |= {"num_attention_heads": 4, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model("starcoder2", **made)
    )
    model.float().save_pretrained(folder := tmp_path / "model")
    config = model.config.to_dict() | {"rms_norm_eps": None}
    writer = library.GGUFWriter(path, "starcoder2")
    for key, value in gguf_files.values_of(config, "starcoder2").items():
        gguf_files.add(writer, key, value)
    writer.add_layer_norm_eps(config["norm_epsilon"])
    gguf_files.words(writer, config)
    names = library.get_tensor_name_map(library.MODEL_ARCH.STARCODER2, 2)
    for name, weight in load_file(folder / "model.safetensors").items():
        stem, _, last = name.rpartition(".")
        writer.add_tensor(f"{names.get_name(stem)}.{last}", weight.numpy())
    gguf_files.finish(writer)
    capfd.readouterr()
    loaded = open_model(Settings(model=str(path)), lambda *_: None)
    assert capfd.readouterr().err == "", "its own bar would stand in the middle of the screen"
    assert "this is starcoder2" in loaded.why_not_native
    assert_logits_are_those_of(folder, loaded, 1e-5)
    file = str(path)
    for settings in (
        Settings(model=file, quantize="nf4"),
        Settings(model=file, quantize="int8"),
        Settings(model=file, quantize="int4"),
        Settings(model=file, quantize="nf4", engine="transformers"),
    ):
        said = f"--quantize {settings.quantize}: .* of the architecture starcoder2"
        with pytest.raises(UsageError, match=said) as error:
            open_model(settings, lambda *_: None)
        assert error.value.hint.startswith("Leave --quantize out, or take the same model as a folder")


def in_parts(file: Path, folder: Path, parts: int) -> list[Path]:
    """The file in several, as llama-gguf-split writes them: all values stand in the first."""
    read = library.GGUFReader(file)
    writer = library.GGUFWriter(
        folder / "big.gguf", "llama", split_max_tensors=-(-len(read.tensors) // parts)
    )
    header = gguf.header_of(file)
    for key, value in header.values.items():
        if key not in writer.kv_data[0]:
            gguf_files.add(writer, key, list(value) if isinstance(value, library_array) else value)
    for one in read.tensors:
        writer.add_tensor(one.name, one.data, raw_dtype=one.tensor_type)
    gguf_files.finish(writer)
    return sorted(folder.glob("big-*-of-*.gguf"))


@pytest.mark.parametrize("engine", ["transformers", "native"])
def test_a_model_in_parts_is_the_whole_one(engine: Any, llama: Path, tmp_path: Path) -> None:
    if engine == "native" and native_library.why_not():
        pytest.skip("there is no native step")
    whole = write(llama, tmp_path / "whole.gguf", "Q8_0")
    (tmp_path / "parts").mkdir()
    parts = in_parts(whole, tmp_path / "parts", 3)
    assert len(parts) == 3
    ids, found = list(range(3, 30)), []
    for path in (whole, parts[0], parts[2]):
        loaded = open_model(Settings(model=str(path), engine=engine), lambda *_: None)
        found.append(Engine(loaded, Settings(budget=64)).feed(ids))
    whole_logits, *others = found
    assert whole_logits is not None
    assert all(one is not None and torch.equal(one, whole_logits) for one in others)
    assert fingerprint(parts[0]) == fingerprint(parts[1]) != fingerprint(whole)


def test_what_is_wrong_with_parts(llama: Path, tmp_path: Path) -> None:
    parts = in_parts(write(llama, tmp_path / "whole.gguf", "F32"), tmp_path, 3)
    raw = [part.read_bytes() for part in parts]
    parts[1].unlink()
    with pytest.raises(ModelError, match=f"1 are missing: {parts[1]}"):
        read_config(parts[0])
    parts[1].write_bytes(raw[0])
    with pytest.raises(ModelError, match=r"00002.* is one of 3 parts of a model, number 0"):
        read_config(parts[0])
    alone = tmp_path / "alone.gguf"
    alone.write_bytes(raw[0])
    with pytest.raises(ModelError, match=r"one of 3 parts.*does not say so"):
        read_config(alone)
