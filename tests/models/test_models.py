"""Finding, checking and loading model folders: everything that can be wrong with one, before and after."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_models import FAMILIES

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ExitCode, ModelError, OutOfMemoryError, UsageError
from h2o_chat.models import choices, load_tokenizer
from h2o_chat.models import load as models
from h2o_chat.models.file_identity import fingerprint
from h2o_chat.models.fits import sizes_of, slot_bytes
from h2o_chat.native import library
from h2o_chat.native.native_model import frame_or_why_not

DAMAGED = r"model\.safetensors is damaged: "


@pytest.fixture
def folder(shared_models: Path, tmp_path: Path) -> Path:
    """A copy of a real model, to break."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in (shared_models / "stories260k").iterdir():
        shutil.copyfile(file, copy / file.name)
    return copy


def load(folder: Path, **settings: Any) -> models.Loaded:
    return models.load(Settings(model=str(folder), **settings), lambda *_: None)


def config_of(tmp_path: Path, **config: Any) -> Path:
    """A folder with a configuration and nothing else."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.mark.parametrize(
    ("model_type", "named", "reason"),
    [
        ("gpt_neo", "GPTNeoForCausalLM", "AttentionInterface"),
        ("mpt", "MptForCausalLM", "AttentionInterface"),
        ("t5", "T5ForConditionalGeneration", "does not continue a text"),
        ("vit", "ViTForImageClassification", "does not continue a text"),
        ("jamba", "JambaForCausalLM", "loses the state of its other layers"),
        ("mamba", "MambaForCausalLM", "it has no attention"),
        ("deepseek_v32", "DeepseekV32ForCausalLM", "an index or a summary of every token"),
        ("diffllama", "DiffLlamaForCausalLM", "more than transformers' AttentionInterface"),
        ("minimax", "MiniMaxForCausalLM", "could be compared"),
        ("llama", "LlamaForSequenceClassification", "not those of LlamaForCausalLM"),
        ("no-such-type", "NoSuchForCausalLM", "does not know the model type 'no-such-type'"),
    ],
)
def test_refused_families(tmp_path: Path, model_type: str, named: str, reason: str) -> None:
    folder = config_of(tmp_path, model_type=model_type, architectures=[named])
    with pytest.raises(ModelError, match="is not supported") as caught:
        load(folder)
    assert reason in caught.value.message
    assert named in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    "model_type",
    sorted({*FAMILIES, "deepseek_v3", "gemma3", "qwen3_5", "falcon_h1", "lfm2", "llama4"}),
)
def test_accepted_families_miss_only_their_weights(tmp_path: Path, model_type: str) -> None:
    assert models.check_family(config_of(tmp_path, model_type=model_type)).model_type == model_type
    with pytest.raises(ModelError, match="no safetensors weights"):
        load(tmp_path)


def test_code_that_comes_with_a_model_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('it ran')")
    mapping = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    folder = config_of(tmp_path, model_type="evil", architectures=["EvilForCausalLM"], auto_map=mapping)
    with pytest.raises(ModelError, match="EvilForCausalLM needs code that comes with the model"):
        load(folder)


@pytest.mark.parametrize("method", ["gptq", "awq", "torchao"])
def test_quantised_weights_are_refused(method: str, tmp_path: Path) -> None:
    folder = config_of(tmp_path, model_type="llama", quantization_config={"quant_method": method, "bits": 4})
    with pytest.raises(ModelError, match=rf"quantised already \({method}\)") as caught:
        load(folder)
    assert caught.value.exit_code == ExitCode.MODEL
    assert "GGUF" in caught.value.hint


def test_a_packing_whose_package_is_missing_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    packed = {"quant_method": "compressed-tensors", "config_groups": {}, "format": "pack-quantized"}
    with pytest.raises(ModelError, match="not installed") as caught:
        load(config_of(tmp_path, model_type="llama", quantization_config=packed))
    assert "h2o-chat[packed]" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "JSON object"),
        ("{}", "names no model_type"),
        ('{"model_type": "llama", "hidden_size": "wide"}', "not a valid llama configuration"),
    ],
)
def test_damaged_config(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match=said):
        load(tmp_path)


def test_no_heads_are_named() -> None:
    """Found by the fuzzer, and so was the next one: transformers reads such configurations."""
    config = transformers.LlamaConfig(num_attention_heads=4, num_key_value_heads=4)
    config.num_attention_heads = config.num_key_value_heads = 0
    with pytest.raises(ModelError, match="0 attention heads"):
        slot_bytes(sizes_of(config), 4)


@pytest.mark.skipif(bool(library.why_not()), reason="there is no native library")
def test_a_number_that_is_none_is_named() -> None:
    config = transformers.LlamaConfig(hidden_size=32, num_attention_heads=1, num_hidden_layers=1)
    config.rms_norm_eps = float("nan")
    with pytest.raises(ModelError, match="rms_norm_eps"):
        frame_or_why_not(Settings(model="x"), config)


def test_only_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin is pickle"):
        load(folder)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("model.safetensors", lambda raw: raw[:-1000], DAMAGED),
        ("model.safetensors", lambda _: b"version https://git-lfs.github.com/spec/v1\noid", DAMAGED),
        ("model.safetensors", lambda _: struct.pack("<Q", 2**60), DAMAGED),
        ("config.json", lambda raw: raw.replace(b": 172", b": 344"), "cannot be loaded"),
        ("tokenizer.json", lambda _: b"{}", r"tokenizer in .* cannot be loaded"),
    ],
)
def test_a_damaged_file(name: str, change: Callable[[bytes], bytes], said: str, folder: Path) -> None:
    """More headers of weights stand in tests/chat/test_readers.py."""
    before = (folder / name).read_bytes()
    (folder / name).write_bytes(change(before))
    assert (folder / name).read_bytes() != before
    with pytest.raises(ModelError, match=said):
        load(folder)


def test_missing_weights_are_not_made_up(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.2.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 1 weights of LlamaForCausalLM: model\.layers\.2\.mlp"):
        load(folder)


def test_missing_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="has no tokenizer"):
        load(folder)


def test_tokenizer_of_another_model(folder: Path, shared_models: Path) -> None:
    shutil.copyfile(shared_models / "stories3m" / "tokenizer.json", folder / "tokenizer.json")
    with pytest.raises(ModelError, match=r"does not belong to the model.*beyond the model's 512"):
        load(folder)


def test_markers_for_images_may_lie_beyond_the_embedding(shared_models: Path) -> None:
    """Gemma 3's text model has no row for its image token."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(shared_models / "stories260k")
    assert load_tokenizer._tokens_outside(tokenizer, 512) == []
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    assert load_tokenizer._tokens_outside(tokenizer, 512) == []
    tokenizer.chat_template = "{{ '<image>' }}"
    assert load_tokenizer._tokens_outside(tokenizer, 512) == ["<image>"]


def test_other_weights_in_a_folder_are_noticed(folder: Path) -> None:
    before = fingerprint(folder)
    assert fingerprint(folder) == before
    weights = folder / "model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-1] ^= 1
    weights.write_bytes(raw)
    assert fingerprint(folder) != before
    assert len(before) == len("weights-") + 12


def test_loads_with_our_attention(folder: Path) -> None:
    stages: list[tuple[str, float | None]] = []
    loaded = models.load(Settings(model=str(folder)), lambda *stage: stages.append(stage))
    assert (loaded.name, loaded.revision, loaded.quantization) == ("copy", fingerprint(folder), "none")
    assert (loaded.dtype, loaded.model.dtype) == ("float32", torch.float32)
    assert loaded.model.config._attn_implementation == "h2o"
    assert not loaded.model.training
    assert loaded.device == str(loaded.model.device)
    assert [stage for stage, _ in stages[:2]] == ["resolve", "load"]
    shares = [share for stage, share in stages if stage == "load" and share is not None]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_loading_says_nothing(shared_models: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load(shared_models / "stories3m", quantize="nf4")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("quantize", ["int8", "nf4"])
def test_quantised(shared_models: Path, quantize: str) -> None:
    story = "Once upon a time, there was a little girl named Lily. She loved to play"
    exact = load(shared_models / "stories3m")
    small = load(shared_models / "stories3m", quantize=quantize)
    assert (small.quantization, small.dtype) == (quantize, "bfloat16")
    weight = small.model.model.layers[0].mlp.up_proj.weight
    assert weight.element_size() == 1
    ids = torch.tensor([exact.tokenizer(story)["input_ids"]])
    for loaded in (exact, small):
        loaded.model.set_attn_implementation("eager")
    with torch.inference_mode():
        same = exact.model(ids).logits.argmax(-1) == small.model(ids).logits.argmax(-1)
    assert same.float().mean() > 0.6


def test_layers_that_cannot_be_packed(folder: Path) -> None:
    """Its feed-forward layers have 172 rows."""
    with pytest.raises(UsageError, match="this model has 172"):
        load(folder, quantize="nf4")
    load(folder, quantize="int8")


@pytest.mark.parametrize("quantize", ["int8", "nf4"])
def test_quantised_by_whoever_published_it(shared_models: Path, tmp_path: Path, quantize: str) -> None:
    """Weights stored by bitsandbytes are loaded unchanged and give the same answers."""
    before = load(shared_models / "stories3m", quantize=quantize)
    stored = tmp_path / "stored"
    before.model.save_pretrained(stored)
    before.tokenizer.save_pretrained(stored)
    after = load(stored)
    assert (after.quantization, after.dtype) == (quantize, "bfloat16")
    ids = torch.tensor([[1, 5, 9, 20]])
    for loaded in (before, after):
        loaded.model.set_attn_implementation("eager")
    with torch.inference_mode():
        assert torch.equal(before.model(ids).logits, after.model(ids).logits)
    with pytest.raises(UsageError, match=f"stored in {quantize} already"):
        load(stored, quantize="none")


def test_what_does_not_fit_is_refused_before_it_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choices, "free_bytes", lambda device: 100)
    monkeypatch.setattr(models, "_load_model", lambda *_: pytest.fail("weights were read"))
    with pytest.raises(OutOfMemoryError, match=r"copy does not fit: it needs .* cpu has 0\.0 GB free"):
        load(folder)


def test_threads(folder: Path) -> None:
    before = torch.get_num_threads()
    try:
        load(folder, threads=2)
        assert torch.get_num_threads() == 2
        load(folder)
        assert torch.get_num_threads() == choices.default_threads() >= 1
    finally:
        torch.set_num_threads(before)
