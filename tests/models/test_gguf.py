"""GGUF files: header, configuration, tokenizer and chat template, and what is wrong with damaged ones."""

import json
import math
import struct
from pathlib import Path
from typing import Any

import gguf as library
import gguf_files
import numpy as np
import pytest
import torch
import transformers
from gguf_files import write
from safetensors.torch import load_file
from tiny_models import tiny

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ModelError, UsageError
from h2o_chat.models import gguf, load, load_tokenizer
from h2o_chat.models.fingerprint import fingerprint
from h2o_chat.models.gguf_config import config_of
from h2o_chat.models.gguf_tokenizer import require_template
from h2o_chat.models.resolve import check_weights, find, look_up, read_config
from h2o_chat.native.loading import bits_of, open_model
from h2o_chat.native.probing import frame_of

SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "head_dim": 32,
    "vocab_size": 320,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
FULL: dict[str, Any] = {"layer_types": ["full_attention"] * 2, "use_sliding_window": False}
CHANGES: dict[str, dict[str, Any]] = {
    "qwen2": FULL,
    "qwen3": FULL,
    "smollm3": {"num_hidden_layers": 5, "no_rope_layers": [1, 1, 1, 0, 1], "pad_token_id": 0},
}
"""The fourth layer of smollm3 turns no keys."""
TEXTS = (
    "Hello, how are you?",
    "  Two spaces,\n\nlines and 1,234 digits.",
    "naïve café – 日本語 🙂",
    "",
    "x" * 50,
)


def folder_of(family: str, folder: Path, **changes: Any) -> Path:
    tiny(family, "eager", torch.float32, **SIZES | changes).save_pretrained(folder)
    return folder


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return folder_of("llama", tmp_path / "llama")


@pytest.fixture
def file(llama: Path, tmp_path: Path) -> Path:
    return write(llama, tmp_path / "tiny.gguf", "Q8_0", template="{{ messages }}")


# -- the header


def test_the_header_is_what_the_package_gguf_reads(file: Path) -> None:
    header, other = gguf.header_of(file), library.GGUFReader(file)
    assert {name: one.contents() for name, one in other.fields.items() if not name.startswith("GGUF.")} == {
        name: list(one) if isinstance(one, list) or hasattr(one, "typecode") else one
        for name, one in header.values.items()
    }
    assert len(other.tensors) == len(header.tensors)
    for tensor in other.tensors:
        mine = header.tensors[tensor.name]
        assert (mine.kind_name, mine.start, mine.bytes) == (
            tensor.tensor_type.name,
            tensor.data_offset,
            tensor.n_bytes,
        )
        assert mine.shape == tuple(reversed(tensor.shape.tolist()))


def test_a_file_that_changed_is_read_again(file: Path, llama: Path) -> None:
    before = gguf.header_of(file)
    assert gguf.header_of(file) is before
    write(llama, file, "F32")
    assert gguf.header_of(file).tensors["output.weight"].kind_name == "F32"


def header(
    values: bytes = b"", tensors: bytes = b"", counts: tuple[int, int] = (1, 1), version: int = 3
) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, counts[1], counts[0]) + values + tensors


def text(words: str | bytes) -> bytes:
    raw = words.encode() if isinstance(words, str) else words
    return struct.pack("<Q", len(raw)) + raw


def tensor(name: str, sides: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(sides)}QIQ", len(sides), *sides, kind, offset)


ARCHITECTURE = text("general.architecture") + struct.pack("<I", 8) + text("llama")
GOOD = tensor("x", (4,)), b"\0" * 64


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"GGUF", "it ends"),
        (b"GGUG" + b"\0" * 30, "does not begin"),
        (header(ARCHITECTURE, GOOD[0], version=1), "has version 1"),
        (header(ARCHITECTURE, GOOD[0], version=3 << 24), "other byte order"),
        (header(b"", b"", counts=(2**63, 1)), "it ends"),
        (header(ARCHITECTURE, b"", counts=(1, 2**63)), "it ends"),
        (header(struct.pack("<Q", 2**62) + b"x"), "would have 4,611,686,018,427,387,904 bytes"),
        (header(ARCHITECTURE * 2, GOOD[0], counts=(2, 1)), "twice"),
        (header(text("a") + struct.pack("<I", 77), GOOD[0]), "the type 77"),
        (
            header(text("a") + struct.pack("<IIQ", 9, 8, 2**60), GOOD[0]),
            "would hold 1,152,921,504,606,846,976 texts",
        ),
        (header(text("a") + struct.pack("<IIQ", 9, 0, 2**60), GOOD[0]), "it ends"),
        (header(text("a") + struct.pack("<IIQ", 9, 9, 1), GOOD[0]), "array of the type 9"),
        (header(text(b"\xff") + struct.pack("<IB", 0, 1), GOOD[0]), "no UTF-8"),
        (header(ARCHITECTURE, tensor("x", (4, 1, 1, 1, 1))), "5 dimensions"),
        (header(ARCHITECTURE, tensor("x", (0, 4))), r"the shape \[4, 0\]"),
        (header(ARCHITECTURE, tensor("x", (2**63, 4))), "the shape"),
        (header(ARCHITECTURE, tensor("x", (4,), 99)), "the type 99"),
        (header(ARCHITECTURE, tensor("x", (4,), 2)), "blocks of 32"),
        (header(ARCHITECTURE, tensor("x", (4,), 0, 3)), "no multiple of 32"),
        (header(ARCHITECTURE, tensor("x", (2**30, 2**9))), "would end at"),
        (header(ARCHITECTURE, GOOD[0] * 2, counts=(1, 2)) + GOOD[1], "twice"),
        (header(ARCHITECTURE, b"", counts=(1, 0)), "no tensors"),
        (header(text("general.alignment") + struct.pack("<II", 4, 0), GOOD[0]), "general.alignment is 0"),
        (header(text("split.count") + struct.pack("<IH", 2, 3), GOOD[0]) + GOOD[1], "one of 3 parts"),
        (
            header(text("a") + struct.pack("<IB", 0, 1), GOOD[0]) + GOOD[1],
            "does not say general.architecture",
        ),
        (
            header(text("general.architecture") + struct.pack("<IB", 0, 1), GOOD[0]) + GOOD[1],
            "a text is needed",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_damaged_header_says_what_is_wrong(raw: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)
    with pytest.raises(ModelError, match=said):
        read_config(path)


def test_a_file_cut_short(file: Path) -> None:
    raw = file.read_bytes()
    file.write_bytes(raw[:-40])
    with pytest.raises(ModelError, match=r"would end at .*fetch it again"):
        check_weights(file)


def test_without_the_package(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf.kinds.cache_clear()
    gguf.forget()
    monkeypatch.setitem(__import__("sys").modules, "gguf", None)
    with pytest.raises(ModelError, match=r"pip install 'h2o-chat\[gguf\]'"):
        read_config(file)


def test_words_of_a_stranger_are_not_obeyed(llama: Path, tmp_path: Path) -> None:
    path = write(llama, tmp_path / "x.gguf", "F32", values={"tokenizer.ggml.model": "\x1b]0;gone\x07"})
    with pytest.raises(ModelError) as caught:
        load_tokenizer.load_tokenizer(path, load.check_family(path))
    assert "\x1b" not in str(caught.value)


# -- names


def test_it_is_found_by_its_name(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find(str(file))
    assert (found.name, found.folder, found.revision) == ("tiny.gguf", file, None)
    monkeypatch.chdir(tmp_path)
    assert find("tiny.gguf").folder.resolve() == file
    with pytest.raises(ModelError, match=r"name one, such as .*tiny\.gguf"):
        look_up(str(tmp_path))
    file.rename(tmp_path / "without a suffix")
    assert find("without a suffix").name == "without a suffix"


def test_a_fingerprint_tells_files_apart(file: Path, llama: Path, tmp_path: Path) -> None:
    before = fingerprint(file)
    assert before == fingerprint(file)
    same = write(llama, tmp_path / "other name.gguf", "Q8_0", template="{{ messages }}")
    assert fingerprint(same) == before
    other = write(llama, tmp_path / "template.gguf", "Q8_0", template="{{ messagez }}")
    assert fingerprint(other) != before, "what the header says counts, at the same length too"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    assert fingerprint(file) != before


# -- the configuration


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "smollm3"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_frame_is_that_of_the_folder(family: str, tied: bool, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"rope_parameters": {"rope_type": "default", "rope_theta": 70000.0}}
    changes |= CHANGES.get(family, {})
    folder = folder_of(family, tmp_path / "model", tie_word_embeddings=tied, rms_norm_eps=2**-17, **changes)
    path = write(folder, tmp_path / "model.gguf", "F16")
    assert frame_of(path) == frame_of(folder)


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


def llama_3_factors(factor: float, size: int, theta: float) -> np.ndarray[Any, Any]:
    """As llama.cpp's converter computes them (conversion/llama.py, generate_extra_tensors)."""
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


def test_another_architecture_is_named(llama: Path, tmp_path: Path) -> None:
    path = write(llama, tmp_path / "x.gguf", "F32", values={"general.architecture": "rwkv9"})
    with pytest.raises(ModelError, match="'rwkv9'"):
        load.check_family(path)


def test_what_ends_an_answer(llama: Path, tmp_path: Path) -> None:
    """The end of a text and the end of a turn, whose number files often leave out."""
    path = write(llama, tmp_path / "x.gguf", "F32", values={"tokenizer.ggml.eot_token_id": 7})
    assert config_of(gguf.header_of(path))["eos_token_id"] == [0, 7]


# -- how it is held


@pytest.mark.parametrize(
    ("kind", "ends", "bits"),
    [("Q4_0", "Q6_K", 4), ("Q8_0", "F16", 8), ("Q4_1", "Q4_1", 8), ("F16", "F16", 8), ("F16", "Q8_0", 8)],
)
def test_bits(kind: str, ends: str, bits: int, llama: Path, tmp_path: Path) -> None:
    """F16 is packed as a folder's fp16 is: in 8 bits, where the model is small."""
    weights = check_weights(write(llama, tmp_path / "x.gguf", kind, ends))
    assert bits_of(Settings(), weights) == bits
    assert bits_of(Settings(quantize="int4"), weights) == 4
    assert weights.parameters == sum(
        one.numel() for one in transformers.AutoModelForCausalLM.from_pretrained(llama).parameters()
    )


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "smollm3"])
def test_transformers_computes_it_too(family: str, tmp_path: Path) -> None:
    """The same logits as with the folder's own weights."""
    folder = folder_of(family, tmp_path / "model", **CHANGES.get(family, {}))
    path = write(folder, tmp_path / "model.gguf", "F32")
    loaded = load.load(Settings(model=str(path), dtype="float64"), lambda *_: None)
    loaded.model.set_attn_implementation("eager")
    own = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager"
    )
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        assert torch.allclose(loaded.model(ids).logits, own(ids).logits, atol=1e-6)
    assert loaded.model.generation_config.eos_token_id == [0]


def test_a_family_without_a_native_step(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """transformers reads gemma2 by itself; the file's norms are 1 more than its own."""
    path = tmp_path / "gemma.gguf"
    sizes = SIZES | FULL | {"query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0}
    sizes |= {"max_position_embeddings": 8192, "tie_word_embeddings": True}
    folder = folder_of("gemma2", tmp_path / "model", **sizes)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    writer = library.GGUFWriter(path, "gemma2")
    for key, value in gguf_files.values_of(config, "gemma2").items():
        gguf_files.add(writer, key, value)
    writer.add_sliding_window(4096)
    gguf_files.words(writer, config)
    names = library.get_tensor_name_map(library.MODEL_ARCH.GEMMA2, 2)
    for name, weight in load_file(folder / "model.safetensors").items():
        called = names.get_name(name.rpartition(".")[0])
        writer.add_tensor(f"{called}.weight", weight.numpy() + ("norm" in name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    capfd.readouterr()
    loaded = open_model(Settings(model=str(path)), lambda *_: None)
    assert capfd.readouterr().err == "", "its own bar would stand in the middle of the screen"
    assert "this is gemma2" in loaded.why_not_native
    loaded.model.set_attn_implementation("eager")
    own = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        assert torch.allclose(loaded.model(ids).logits, own(ids).logits, atol=1e-5)


def test_a_rotation_that_transformers_does_not_read(llama: Path, tmp_path: Path) -> None:
    values = {"general.architecture": "gemma3", "gemma3.rope.scaling.type": "linear"}
    with pytest.raises(ModelError, match="which transformers does not read"):
        read_config(write(llama, tmp_path / "x.gguf", "F32", values=values))


# -- the tokenizer


@pytest.mark.parametrize("name", ["pilot-chat", "stories3m", "stories260k"])
def test_a_tokenizer_makes_the_same_tokens(name: str, shared_models: Path, tmp_path: Path) -> None:
    folder = shared_models / name
    template = folder / "chat_template.jinja"
    words = template.read_text("utf-8") if template.is_file() else None
    path = write(folder, tmp_path / "x.gguf", "F16", tokenizer=folder, template=words)
    ours = load_tokenizer.load_tokenizer(path, load.check_family(path))
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for said in TEXTS:
        ids = theirs(said, add_special_tokens=False)["input_ids"]
        assert ours(said, add_special_tokens=False)["input_ids"] == ids
        assert ours.decode(ids) == theirs.decode(ids)
    assert (ours.bos_token, ours.eos_token) == (theirs.bos_token, theirs.eos_token)
    assert set(theirs.all_special_ids) - {theirs.pad_token_id} <= set(ours.all_special_ids)
    assert ours.chat_template == theirs.chat_template
    if words:
        said_to = [{"role": "user", "content": "Hello"}]
        assert (
            ours.apply_chat_template(said_to, add_generation_prompt=True)["input_ids"]
            == (theirs.apply_chat_template(said_to, add_generation_prompt=True)["input_ids"])
        )


def test_control_tokens_outside_the_alphabet(llama: Path, tmp_path: Path) -> None:
    """As DeepSeek's are: in a byte-level vocabulary, spelled as they are."""
    words = ["<|end|>", "<｜User｜>", *"abcdefgh", "ab"] + [f"[{number}]" for number in range(309)]
    values = {
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [3, 3] + [1] * 318,
        "tokenizer.ggml.merges": ["a b"],
    }
    path = write(llama, tmp_path / "x.gguf", "F32", values=values)
    tokenizer = load_tokenizer.load_tokenizer(path, load.check_family(path))
    assert tokenizer("<｜User｜>abc<|end|>", add_special_tokens=False)["input_ids"] == [1, 10, 4, 0]
    assert tokenizer.decode([1, 10], skip_special_tokens=True) == "ab"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"tokenizer.ggml.model": "rwkv"}, "of the kind 'rwkv'"),
        ({"tokenizer.ggml.pre": "klingon"}, "splits text as 'klingon' does"),
        ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.merges": None}, "neither merges nor a score"),
        ({"tokenizer.ggml.tokens": ["a"] * 320}, "holds a token twice"),
        ({"tokenizer.ggml.merges": ["a b c"]}, "cannot be loaded"),
        ({"tokenizer.ggml.tokens": ["a" * 1001]}, "more than 1,000 characters"),
        ({"tokenizer.ggml.merges": 7}, "a list of texts is needed"),
        (
            {"tokenizer.ggml.tokens": ["!", "!!", *map(str, range(398))]},
            "80 tokens beyond the model's 320",
        ),
    ],
)
def test_a_damaged_tokenizer(values: dict[str, Any], said: str, llama: Path, tmp_path: Path) -> None:
    path = write(llama, tmp_path / "x.gguf", "F32", values=values)
    with pytest.raises(ModelError, match=said):
        load_tokenizer.load_tokenizer(path, load.check_family(path))


def test_without_a_chat_template_one_is_asked_for(file: Path, llama: Path, tmp_path: Path) -> None:
    require_template(Settings(model=str(file)))
    bare = str(write(llama, tmp_path / "bare.gguf", "F32"))
    require_template(Settings(model=bare, template="plain"))
    with pytest.raises(UsageError, match=r"without a chat template\. .*chatml; or plain"):
        require_template(Settings(model=bare))
    require_template(Settings(model=str(llama)))
