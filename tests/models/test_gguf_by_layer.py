"""GGUF files of gemma4 and qwen35, whose layers differ: computed by transformers, and bounded.

`write_by_layer` makes the files that llama.cpp's converter makes, to the last bit.
"""

from pathlib import Path
from typing import Any

import any_family
import numpy as np
import pytest
import torch
import transformers
from any_oracle import ATTENTION, LiteralCache
from gguf_by_layer import write_by_layer
from oracle import feed

from h2o_chat import H2OCache
from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ModelError
from h2o_chat.models import load
from h2o_chat.models.load_tokenizer import load_tokenizer
from h2o_chat.models.model_files import read_config
from h2o_chat.transformers_cache import registered

_SIZES = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 32, "moe_intermediate_size": 32}
"""llama.cpp computes with no smaller heads."""
_GEMMA4 = any_family.ODD["gemma4_text"] | _SIZES | {"global_head_dim": 64, "hidden_size_per_layer_input": 32}
_GEMMA4 |= {"final_logit_softcapping": 9.0}  # llama.cpp takes 30 where a file has none
_EXPERTS = {"enable_moe_block": True, "attention_k_eq_v": True, "num_global_key_value_heads": 1}
_EXPERTS |= {"num_kv_shared_layers": 0, "hidden_size_per_layer_input": 0}
_QWEN = _SIZES | {"linear_key_head_dim": 32, "linear_value_head_dim": 32}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma4": ("gemma4_text", _GEMMA4),
    "gemma4, wide": ("gemma4_text", _GEMMA4 | {"use_double_wide_mlp": True, "tie_word_embeddings": True}),
    "gemma4, experts": ("gemma4_text", _GEMMA4 | _EXPERTS),
    "qwen35": ("qwen3_5_text", _QWEN),
    "qwen35, tied": ("qwen3_5_text", _QWEN | {"linear_num_value_heads": 2, "tie_word_embeddings": True}),
    "qwen35moe": ("qwen3_5_moe_text", _QWEN),
}
BUDGET = 24


def made(name: str, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype = torch.float64) -> Any:
    """A tiny model with random weights; their numbers are those of fp32, as in a file."""
    family, changes = MODELS[name]
    monkeypatch.setitem(any_family.ODD, family, changes)
    model = any_family.tiny(family, torch.float32)
    for layer in model.model.layers:
        if hasattr(layer, "layer_scalar"):
            layer.layer_scalar.fill_(0.9)
    return model.to(dtype)


def opened(path: Path, dtype: Any = "float64") -> Any:
    loaded = load.load(Settings(model=str(path), dtype=dtype), lambda *_: None)
    loaded.model.set_experts_implementation("eager")  # the others know no float64
    return loaded


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_logits_and_kept_sets(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the model that was written, the kept sets by the literal H2O in 24 slots."""
    model = made(name, monkeypatch)
    model.set_experts_implementation("eager")
    mine = opened(write_by_layer(model, tmp_path / "model.gguf")).model
    ids = any_family.prompt(48)
    mine.set_attn_implementation("eager")
    torch.testing.assert_close(mine(ids).logits, model(ids).logits, atol=1e-5, rtol=0)
    literal, cache = LiteralCache(model, BUDGET), H2OCache(BUDGET, policy="h2o-paper", model=mine)
    model.set_attn_implementation(ATTENTION)
    mine.set_attn_implementation(registered.NAME)
    for token in ids[0].tolist():
        torch.testing.assert_close(feed(mine, cache, token), feed(model, literal, token), atol=1e-4, rtol=0)
        kept = [cache.kept(layer).tolist() for layer in range(len(cache.attention_layers))]
        assert [
            [[sorted(at for at in head if at >= 0) for head in row] for row in one] for one in kept
        ] == literal.kept()


@pytest.mark.parametrize("name", ["gemma4", "gemma4, experts", "qwen35", "qwen35moe"])
def test_quantised_weights(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made(name, monkeypatch, torch.float32)
    blocks = opened(write_by_layer(model, tmp_path / "blocks.gguf", "Q8_0"), "float32").model.state_dict()
    exact = write_by_layer(model, tmp_path / "exact.gguf", "Q8_0", exact=True)
    for key, numbers in opened(exact, "float32").model.state_dict().items():
        torch.testing.assert_close(blocks[key], numbers, atol=1e-7, rtol=0, msg=key)
    assert not torch.equal(blocks["lm_head.weight"], model.state_dict()["lm_head.weight"])


@torch.no_grad()
def test_layers_that_guess_further_tokens_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made("qwen35", monkeypatch)
    more = {"blk.4.nextn.eh_proj.weight": np.ones((64, 128)), "blk.4.attn_norm.weight": np.ones(64)}
    recurrent = [True, False, True, False, False]
    values = {"qwen35.block_count": 5, "qwen35.nextn_predict_layers": 1}
    path = write_by_layer(
        model,
        tmp_path / "model.gguf",
        values=values | {"qwen35.attention.recurrent_layers": recurrent},
        tensors=more,
    )
    mine, ids = opened(path).model, any_family.prompt(20)
    mine.set_attn_implementation("eager")
    torch.testing.assert_close(mine(ids).logits, model(ids).logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("name", "what", "other", "said"),
    [
        ("gemma4", "attention.temperature_length", 8, "has gemma4.attention.temperature"),
        ("gemma4", "rope.scaling.type", "yarn", "has gemma4.rope.scaling.type"),
        ("gemma4", "rope.dimension_count_swa", 4, r"\(4, 64\) numbers of heads"),
        ("gemma4", "attention.shared_kv_layers", 3, "holds 3 tensors that a gemma4"),
        ("gemma4", "attention.shared_kv_layers", 1, "lacks 3 weights"),
        ("gemma4", "attention.sliding_window_pattern", [True] * 6, "the last has a window"),
        ("gemma4", "attention.head_count_kv", [2, 2], "another number of layers"),
        ("gemma4", "attention.head_count_kv", [float("nan")] * 6, "is not a valid"),
        ("gemma4", "attention.key_length", "wide", "key_length is wide"),
        ("gemma4", "feed_forward_length", 50, "ffn_gate.weight has the shape"),
        ("gemma4", "rope_freqs.weight", [1.0, 1.0, 2.0] + [1e30] * 29, "is not 1 up to a place"),
        ("gemma4", "rope_freqs.weight", None, "rope_freqs.weight is missing"),
        ("gemma4", "blk.0.attn_q.bias", [1.0] * 128, "holds 1 tensors that a gemma4"),
        ("gemma4", "blk.0.layer_output_scale.weight", None, "lacks 1 weights"),
        ("qwen35", "rope.scaling.type", "yarn", "has qwen35.rope.scaling.type"),
        ("qwen35", "attention.recurrent_layers", [True] * 4, "recurrent_layers, which"),
        ("qwen35", "nextn_predict_layers", "one", "nextn_predict_layers is one"),
        ("qwen35", "ssm.state_size", None, "is not a valid"),
        ("qwen35", "rope.dimension_count", 2**30, "1,073,741,824, and a head has 32"),
        ("qwen35", "feed_forward_length", 2**30, "its values say 824,6"),
        ("qwen35", "blk.1.attn_q.bias", [1.0] * 256, "holds 1 tensors"),
        ("qwen35", "blk.0.ssm_out.weight", None, "values say 225,040"),
    ],
)
def test_what_is_not_understood_is_refused(
    name: str, what: str, other: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value of the file, or a tensor, is another one; None: it lacks."""
    tensor = what.endswith((".weight", ".bias"))
    changes: dict[str, Any] = {"tensors": {what: other}} if tensor else {"values": {f"{name}.{what}": other}}
    path = write_by_layer(made(name, monkeypatch), tmp_path / "model.gguf", **changes)
    with pytest.raises(ModelError, match=said):
        load.load(Settings(model=str(path)), lambda *_: None)


def _rounded_gelu(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_llama_cpp_computes_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its GELU comes from a table in fp16, so that is rounded here for gemma4; qwen35 has none."""
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    path = write_by_layer(made(name, monkeypatch, torch.float32), tmp_path / "model.gguf")
    theirs = llama_cpp.Llama(
        str(path), n_ctx=256, n_threads=1, logits_all=True, verbose=False, type_k=0, type_v=0
    )
    mine, ids = opened(path, "float32").model, any_family.prompt(40)[0].tolist()
    mine.set_attn_implementation("eager")
    for module in mine.modules():
        if name.startswith("gemma4") and hasattr(module, "act_fn"):
            module.act_fn.forward = _rounded_gelu
    theirs.eval(ids)
    far = 1e-2 if name.startswith("gemma4") else 1e-3
    for _ in range(20):
        logits, expected = mine(torch.tensor([ids])).logits[0], torch.tensor(theirs.scores[: len(ids)])
        torch.testing.assert_close(logits, expected, atol=far, rtol=0)
        assert logits[-1].argmax() == expected[-1].argmax()
        ids.append(int(logits[-1].argmax()))
        theirs.eval(ids[-1:])


def test_the_tokenizer_of_gemma4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens are those of transformers' class; an answer ends where a turn does, which files do not say."""
    monkeypatch.setitem(MODELS, "gemma4", ("gemma4_text", _GEMMA4 | {"vocab_size": 320}))
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>"]
    merges = ["h e", "l l", "▁ ▁", "▁ he", "▁he ll", "\n \n"]
    tokens = [
        *special,
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *"▁helo\n",
        *(one.replace(" ", "") for one in merges),
    ]
    values = {
        "tokenizer.ggml.model": "gemma4",
        "tokenizer.ggml.pre": None,
        "tokenizer.ggml.tokens": tokens + [f"<unused{number}>" for number in range(320 - len(tokens))],
        "tokenizer.ggml.token_type": [3] * 6 + [6] * 256 + [1] * 58,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.add_space_prefix": False,
        **{
            f"tokenizer.ggml.{one}_token_id": at
            for at, one in enumerate(("padding", "eos", "bos", "unknown"))
        },
    }
    path = write_by_layer(made("gemma4", monkeypatch), tmp_path / "model.gguf", values=values)
    mine, vocabulary = load_tokenizer(path, 320), {token: number for number, token in enumerate(tokens)}
    theirs = transformers.GemmaTokenizer(vocab=vocabulary, merges=[tuple(one.split(" ")) for one in merges])
    theirs.add_special_tokens({"additional_special_tokens": special[4:]})
    for text in ("hello", " hello  hell", "he\n\nllo\n", "<|turn>hello<turn|>\n", "naïve 日本", "", "   "):
        ids = theirs(text, add_special_tokens=False)["input_ids"]
        assert mine(text, add_special_tokens=False)["input_ids"] == ids
        assert mine.decode(ids) == text
    assert read_config(path)["eos_token_id"] == [1, 5]
