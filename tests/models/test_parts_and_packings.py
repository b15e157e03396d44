"""Models as they are published in 2026: with a part that sees, with experts, with packed weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from opened_models import copy_tokenizer
from safetensors.torch import load_file, save_file

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import UsageError
from h2o_chat.cli import doctor
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Token
from h2o_chat.models.load import Loaded, load
from h2o_chat.native.native_model import open_model

_TEXT = {
    "vocab_size": 4096,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
}
_SEES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 16,
}


def saved(config: Any, folder: Path, tokenizer_of: Path) -> Any:
    """A random model of a configuration in a folder; returns it."""
    torch.manual_seed(0)
    sees = config.get_text_config() is not config
    auto = transformers.AutoModelForImageTextToText if sees else transformers.AutoModelForCausalLM
    model = auto.from_config(config).eval()
    model.save_pretrained(folder)
    copy_tokenizer(tokenizer_of, folder)
    return model


def opened(folder: Path, **settings: Any) -> Loaded:
    return load(Settings(model=str(folder), budget=64, **settings), lambda *_: None)


def test_of_a_model_that_sees_only_the_text_part_is_loaded(shared_models: Path, tmp_path: Path) -> None:
    config = transformers.Gemma3Config(
        text_config=_TEXT | {"query_pre_attn_scalar": 16},
        vision_config=_SEES | {"model_type": "siglip_vision_model"},
        mm_tokens_per_image=4,
        **{f"{name}_token_index": 4000 for name in ("image", "boi", "eoi")},
    )
    whole = saved(config, tmp_path, shared_models / "pilot-chat")
    loaded = opened(tmp_path)
    assert loaded.parameters == whole.get_decoder().num_parameters() < whole.num_parameters()
    assert not any("vision" in name or "projector" in name for name, _ in loaded.model.named_parameters())
    ids = torch.randint(3, 4096, (1, 30), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = whole(input_ids=ids).logits[0, -1]
    engine = Engine(loaded, Settings(budget=64))
    logits = engine.feed(ids[0].tolist())
    assert logits is not None
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def pack(folder: Path, weights: dict[str, torch.Tensor], how: dict[str, Any]) -> None:
    """Puts other weights into a folder, and into its configuration how they are packed."""
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = transformers.AutoConfig.from_pretrained(folder)
    config.quantization_config = how
    config.save_pretrained(folder)


def answers(loaded: Loaded) -> bool:
    events = Engine(loaded, Settings(budget=64)).generate([5, 6, 7], Sampling(max_tokens=5))
    return any(isinstance(event, Token) for event in events)


def gpt_oss(folder: Path, tokenizer_of: Path) -> Any:
    sizes = {"num_local_experts": 4, "num_experts_per_tok": 2, "eos_token_id": 2, "pad_token_id": 0}
    turns = {"rope_type": "default", "rope_theta": 1e4}
    config = transformers.GptOssConfig(**_TEXT | sizes, sliding_window=16, rope_parameters=turns)
    return saved(config, folder, tokenizer_of)


def test_packed_experts_are_unpacked(shared_models: Path, tmp_path: Path) -> None:
    """MXFP4: two numbers of four bits in a byte, a power of two for each block of 32 (OCP MX v1.0)."""
    gpt_oss(tmp_path, shared_models / "pilot-chat")
    weights, noise = load_file(tmp_path / "model.safetensors"), torch.Generator().manual_seed(3)
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    grid = torch.cat((grid, -grid))
    expected = {}
    for layer in range(2):
        for name in ("gate_up_proj", "down_proj"):
            full = f"model.layers.{layer}.mlp.experts.{name}"
            experts, columns, rows = weights.pop(full).shape
            blocks = torch.randint(0, 256, (experts, rows, columns // 32, 16), generator=noise)
            scales = torch.randint(118, 124, (experts, rows, columns // 32), generator=noise)
            weights[f"{full}_blocks"] = blocks.to(torch.uint8)
            weights[f"{full}_scales"] = scales.to(torch.uint8)
            pairs = torch.stack((grid[blocks & 15], grid[blocks >> 4]), -1).flatten(-2)
            numbers = pairs * 2.0 ** (scales - 127).unsqueeze(-1)
            expected[full] = numbers.flatten(-2).transpose(1, 2)
    pack(tmp_path, weights, {"quant_method": "mxfp4"})

    loaded = opened(tmp_path)
    found = dict(loaded.model.named_parameters())
    for name, numbers in expected.items():
        assert torch.equal(found[name].float(), numbers.float()), name
    assert answers(loaded)


@pytest.mark.parametrize("how", ["nf4", "int8"])
def test_experts_are_not_quantised_here(how: str, shared_models: Path, tmp_path: Path) -> None:
    gpt_oss(tmp_path, shared_models / "pilot-chat")
    with pytest.raises(UsageError, match="experts") as error:
        opened(tmp_path, quantize=how)
    assert "safetensors" not in error.value.hint, "it is a folder of them"
    assert opened(tmp_path).quantization == "none"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"engine": "native", "quantize": "int8"}, "The native step cannot compute"),
        ({"quantize": "int4"}, "--quantize int4 is of the native step"),
    ],
)
def test_who_asks_for_the_native_step_hears_why_it_cannot(
    asked: dict[str, Any], said: str, shared_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is said of quantising, which concerns the other step."""
    gpt_oss(tmp_path, shared_models / "pilot-chat")
    with pytest.raises(UsageError, match=said):
        open_model(Settings(model=str(tmp_path), **asked), lambda *_: None)
    for name, value in (asked | {"model": str(tmp_path)}).items():
        monkeypatch.setenv(f"H2O_CHAT_{name.upper()}", value)
    assert any(one.prevents and one.what.startswith(said) for one in doctor.examine().problems)


def test_eight_bit_weights_are_unpacked(shared_models: Path, tmp_path: Path) -> None:
    """FP8: numbers of eight bits, a factor for each block of 32 x 32."""
    saved(transformers.LlamaConfig(**_TEXT), tmp_path, shared_models / "pilot-chat")
    weights, expected = load_file(tmp_path / "model.safetensors"), {}
    for name in [name for name in weights if "_proj" in name]:
        blocks = weights[name].unflatten(0, (-1, 32)).unflatten(2, (-1, 32))
        scales = blocks.abs().amax((1, 3)) / 448
        packed = (blocks / scales[:, None, :, None]).to(torch.float8_e4m3fn)
        weights[name] = packed.flatten(2).flatten(0, 1).contiguous()
        weights[f"{name}_scale_inv"] = scales
        expected[name] = (packed.float() * scales[:, None, :, None]).flatten(2).flatten(0, 1)
    pack(tmp_path, weights, {"quant_method": "fp8", "weight_block_size": [32, 32]})
    found = dict(opened(tmp_path).model.named_parameters())
    for name, numbers in expected.items():
        torch.testing.assert_close(found[name].float(), numbers, rtol=2**-8, atol=0)


def test_weights_of_compressed_tensors_are_unpacked(shared_models: Path, tmp_path: Path) -> None:
    """Eight numbers of four bits in a word, a factor for each 32 of a row; packed by the package itself."""
    pytest.importorskip("compressed_tensors", reason="the extra `packed` is not installed")
    from compressed_tensors import quantization as ct
    from compressed_tensors.compressors import ModelCompressor

    model = saved(transformers.LlamaConfig(**_TEXT), tmp_path, shared_models / "pilot-chat")
    weights = ct.QuantizationArgs(num_bits=4, type="int", symmetric=True, strategy="group", group_size=32)
    how = ct.QuantizationConfig(
        config_groups={"all": ct.QuantizationScheme(targets=["Linear"], weights=weights)},
        ignore=["lm_head"],
        format="pack-quantized",
        quantization_status="compressed",
    )
    ct.apply_quantization_config(model, how)
    expected = {}
    for name, module in model.named_modules():
        if hasattr(module, "weight_scale"):
            groups = module.weight.data.unflatten(1, (-1, 32))
            scales = (groups.abs().amax(-1) / 7).clamp_min(1e-6)
            module.weight_scale.data.copy_(scales)
            levels = (groups / scales.unsqueeze(-1)).round().clamp(-8, 7)
            expected[f"{name}.weight"] = (levels * scales.unsqueeze(-1)).flatten(1)
    ModelCompressor(quantization_config=how).compress_model(model)
    named = how.model_dump(mode="json") | {"quant_method": "compressed-tensors"}
    pack(tmp_path, model.state_dict(), named)
    loaded = opened(tmp_path)
    found = dict(loaded.model.named_parameters())
    assert len(expected) == 14
    for name, numbers in expected.items():
        torch.testing.assert_close(found[name].float(), numbers, rtol=2**-7, atol=1e-5)
    assert answers(loaded)
