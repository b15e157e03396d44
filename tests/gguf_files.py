"""Model folders written as GGUF files with the package gguf, as llama.cpp's converter writes them."""

import json
from itertools import islice, product
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

Floats = NDArray[np.float32]
Kind = gguf.GGMLQuantizationType

OUTER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_INNER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps",
    "mlp.router": "ffn_gate_inp",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_up_proj": "ffn_up",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_ARCHITECTURES = {
    **{"mistral": "llama", "qwen3_moe": "qwen3moe", "gpt_oss": "gpt-oss", "gemma3_text": "gemma3"},
}
_GEMMA = ("gemma2", "gemma3")
_IN_PAIRS = ("llama", "smollm3", "granite")
_CONTROL, _NORMAL, _BYTE = 3, 1, 6


def write(
    folder: Path,
    path: Path,
    kind: str,
    ends: str | None = None,
    *,
    mixed: dict[str, str] | None = None,
    tokenizer: Path | None = None,
    template: str | None = None,
    values: dict[str, Any] | None = None,
    tensors: dict[str, Floats] | None = None,
    leave_out: str = "nothing",
) -> Path:
    """Writes a folder's model as a file.

    Args:
        kind: type of the layers' matrices: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K.
        ends: type of embedding and head; None: the same.
        mixed: other types, by a part of a tensor's name in the file.
        tokenizer: a folder whose tokenizer goes in; None: a vocabulary of made-up words.
        template: a chat template.
        values: more values, or others: int, float, str, bool or None (left out).
        tensors: more tensors, in F32, or others.
        leave_out: no tensor with this in its name in the file.
    """
    config = json.loads((folder / "config.json").read_text("utf-8"))
    family = _ARCHITECTURES.get(config["model_type"], config["model_type"])
    writer = gguf.GGUFWriter(path, family)
    _tokenizer(writer, config, tokenizer, template)
    for key, value in (values_of(config, family) | (values or {})).items():
        writer.kv_data[0].pop(key, None)
        add(writer, key, value)
    stored = {name: one for file in folder.glob("*.safetensors") for name, one in load_file(file).items()}
    for name, tensor in stacked(stored).items():
        called = called_in_file(name, family)
        if leave_out in called or called in (tensors or {}):
            continue
        numbers = tensor.float().numpy()
        if family in _GEMMA and "norm" in called:
            numbers = numbers + 1
        if family in _IN_PAIRS and called.endswith(("attn_q.weight", "attn_k.weight")):
            heads = "num_attention_heads" if "attn_q" in called else "num_key_value_heads"
            numbers = _in_pairs(numbers, config[heads])
        wanted = kind if name not in OUTER or not ends else ends
        wanted = next((other for part, other in (mixed or {}).items() if part in called), wanted)
        if numbers.ndim == 1 or wanted == "F32" or "gate_inp" in called or called.endswith(".bias"):
            writer.add_tensor(called, numbers)
        else:
            if numbers.shape[-1] % 256:  # as llama.cpp does
                wanted = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}.get(wanted, wanted)
            rows = quantized(numbers.reshape(-1, numbers.shape[-1]), wanted)
            writer.add_tensor(called, rows.reshape(*numbers.shape[:-1], -1), raw_dtype=Kind[wanted])
    for called, numbers in (tensors or {}).items():
        writer.add_tensor(called, np.ascontiguousarray(numbers, np.float32))
    finish(writer)
    return path


def finish(writer: gguf.GGUFWriter) -> None:
    """Writes all that was added to a file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantized(numbers: Floats, kind: str) -> NDArray[Any]:
    """Rows in blocks of a type; the package gguf has no quantiser for K types, so those are made here."""
    if kind in ("Q4_K", "Q5_K"):
        return _q4_k(numbers, 15 if kind == "Q4_K" else 31)
    if kind == "Q6_K":
        return _q6_k(numbers)
    return np.asarray(gguf.quants.quantize(numbers, Kind[kind]))


def _q4_k(numbers: Floats, most: int) -> NDArray[Any]:
    """256 numbers: fp16 scale and minimum, 8 x (6 bits scale, 6 bits minimum), 256 x 4 bits.

    Q5_K, where the highest level is 31, has 256 x 1 bit before those.
    """
    groups = numbers.reshape(-1, 8, 32)
    least = np.maximum(-groups.min(2), 0)
    step = (groups.max(2) + least) / most
    d = (step.max(1) / 63).astype(np.float16)
    dmin = (least.max(1) / 63).astype(np.float16)
    scales = _share(step, d)
    minima = _share(least, dmin)
    real = (d.astype(np.float32)[:, None] * scales)[..., None]
    shift = (dmin.astype(np.float32)[:, None] * minima)[..., None]
    q = np.clip(np.rint((groups + shift) / np.where(real == 0, 1, real)), 0, most).astype(np.uint8)
    packed = np.empty((len(groups), 12), np.uint8)
    packed[:, :4] = scales[:, :4] | (scales[:, 4:] >> 4) << 6
    packed[:, 4:8] = minima[:, :4] | (minima[:, 4:] >> 4) << 6
    packed[:, 8:] = (scales[:, 4:] & 15) | (minima[:, 4:] & 15) << 4
    pairs = q.reshape(-1, 4, 2, 32)
    nibbles = ((pairs[:, :, 0] & 15) | (pairs[:, :, 1] & 15) << 4).reshape(-1, 128)
    heads = np.stack([d, dmin], 1).view(np.uint8).reshape(-1, 4)
    bits = (q >> 4 << np.arange(8, dtype=np.uint8)[:, None]).sum(
        1, dtype=np.uint8
    )  # bit g of byte i: group g
    return np.concatenate([heads, packed, *([bits] if most > 15 else []), nibbles], 1).reshape(
        len(numbers), -1
    )


def _q6_k(numbers: Floats) -> NDArray[Any]:
    """256 numbers: 256 x 4 low bits, 256 x 2 high bits, 16 x 8 bits scale, fp16 scale."""
    groups = numbers.reshape(-1, 16, 16)
    step = np.abs(groups).max(2) / 31
    d = (step.max(1) / 127).astype(np.float16)
    scales = _share(step, d, 127)
    real = (d.astype(np.float32)[:, None] * scales)[..., None]
    q = (np.clip(np.rint(groups / np.where(real == 0, 1, real)), -32, 31) + 32).astype(np.uint8)
    halves = q.reshape(-1, 2, 4, 32)
    low = (halves[:, :, :2] & 15) | (halves[:, :, 2:] & 15) << 4
    two = halves >> 4
    high = two[:, :, 0] | two[:, :, 1] << 2 | two[:, :, 2] << 4 | two[:, :, 3] << 6
    parts = [low.reshape(-1, 128), high.reshape(-1, 64), scales, d[:, None].view(np.uint8)]
    return np.concatenate(parts, 1).reshape(len(numbers), -1)


def _share(of: Floats, unit: NDArray[np.float16], most: int = 63) -> NDArray[np.uint8]:
    whole = unit.astype(np.float32)[:, None]
    return np.clip(np.rint(of / np.where(whole == 0, 1, whole)), 0, most).astype(np.uint8)


def values_of(config: dict[str, Any], family: str) -> dict[str, Any]:
    """The sizes of its model in a file."""
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    rope = config.get("rope_parameters") or config
    experts = {
        f"{family}.expert_count": config.get("num_experts") or config.get("num_local_experts"),
        f"{family}.expert_used_count": config.get("num_experts_per_tok"),
        f"{family}.expert_feed_forward_length": config.get("moe_intermediate_size"),
        f"{family}.attention.sliding_window": (
            config.get("sliding_window") if family in ("gpt-oss", "phi3", *_GEMMA) else None
        ),
        f"{family}.attn_logit_softcapping": config.get("attn_logit_softcapping"),
        f"{family}.final_logit_softcapping": config.get("final_logit_softcapping"),
        f"{family}.embedding_scale": config.get("embedding_multiplier"),
        f"{family}.residual_scale": config.get("residual_multiplier"),
        f"{family}.attention.scale": config.get("attention_multiplier"),
        f"{family}.logit_scale": config.get("logits_scaling"),
    }
    if family == "gemma3":
        near = [one == "sliding_attention" for one in config["layer_types"]]
        experts["gemma3.attention.sliding_window_pattern"] = near
        experts["gemma3.rope.freq_base_swa"] = float(rope["sliding_attention"]["rope_theta"])
        rope = rope["full_attention"]
    if rope.get("rope_type") == "linear":
        experts |= {f"{family}.rope.scaling.type": "linear", f"{family}.rope.scaling.factor": rope["factor"]}
    if rope.get("rope_type") == "yarn" and family == "gpt-oss":
        experts |= {
            f"{family}.rope.scaling.type": "yarn",
            f"{family}.rope.scaling.factor": rope["factor"],
            f"{family}.rope.scaling.original_context_length": rope["original_max_position_embeddings"],
        }
    return experts | {
        f"{family}.context_length": config["max_position_embeddings"],
        f"{family}.embedding_length": config["hidden_size"],
        f"{family}.block_count": config["num_hidden_layers"],
        f"{family}.feed_forward_length": config["intermediate_size"],
        f"{family}.attention.head_count": heads,
        f"{family}.attention.head_count_kv": config["num_key_value_heads"],
        f"{family}.attention.key_length": size,
        f"{family}.attention.value_length": size,
        f"{family}.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        f"{family}.rope.freq_base": float(rope.get("rope_theta", 10_000.0)),
    }


def add(writer: Any, key: str, value: Any) -> None:
    """One value, as what it is."""
    if value is None:
        return
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def _tokenizer(writer: Any, config: dict[str, Any], folder: Path | None, template: str | None) -> None:
    if template:
        writer.add_chat_template(template)
    if folder is None:
        words(writer, config)
        return
    data = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    special = {one["id"] for one in data["added_tokens"] if one["special"]}
    tokens = sorted(data["model"]["vocab"], key=data["model"]["vocab"].get)
    kinds = [_CONTROL if number in special else _NORMAL for number in range(len(tokens))]
    merges = [" ".join(one) for one in data["model"]["merges"]]
    if data["model"]["byte_fallback"]:
        writer.add_tokenizer_model("llama")
        kinds = [
            _BYTE if token.startswith("<0x") else kind for token, kind in zip(tokens, kinds, strict=True)
        ]
        ranks = {merge.replace(" ", ""): float(-rank) for rank, merge in reversed(list(enumerate(merges)))}
        writer.add_token_scores([ranks.get(token, -1e6) for token in tokens])
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm" if "Digits" in str(data["pre_tokenizer"]) else "gpt-2")
        writer.add_token_merges(merges)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    if config.get("pad_token_id") is not None:
        writer.add_pad_token_id(config["pad_token_id"])


def words(writer: Any, config: dict[str, Any]) -> None:
    """Adds the model's number of tokens: an end, and words of one to three letters that no merge makes."""
    letters = [chr(code) for code in range(ord("!"), ord("~") + 1)]
    made = ("".join(word) for length in (1, 2, 3) for word in product(letters, repeat=length))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(["<|end|>", *islice(made, config["vocab_size"] - 1)])
    writer.add_token_types([_CONTROL, *[_NORMAL] * (config["vocab_size"] - 1)])
    writer.add_token_merges(["! !"])
    writer.add_eos_token_id(0)


def stacked(numbers: dict[str, Any]) -> dict[str, Any]:
    """Weights with each layer's experts in one tensor: gpt_oss has one, turned, with gate and up by turns."""
    found = {name: one for name, one in numbers.items() if ".experts." not in name}
    for name in [one for one in numbers if ".experts.gate_up_proj" in one or ".experts.down_proj" in one]:
        whole, ending = numbers.pop(name), "bias" if name.endswith("_bias") else "weight"
        layer = name.partition(".experts.")[0]
        parts = {"gate": whole[..., ::2], "up": whole[..., 1::2]} if "gate_up" in name else {"down": whole}
        for part, one in parts.items():
            turned = one if ending == "bias" else one.transpose(1, 2)
            found[f"{layer}.experts.{part}_proj.{ending}"] = turned.contiguous()
    for name in sorted(numbers.keys() - found.keys()):
        layer, _, rest = name.partition(".experts.")
        of = rest.partition(".")[2]
        count = sum(one.startswith(f"{layer}.experts.") and one.endswith(of) for one in numbers)
        each = [numbers[f"{layer}.experts.{expert}.{of}"] for expert in range(count)]
        found[f"{layer}.experts.{of}"] = torch.stack(each)
    return found


def called_in_file(name: str, architecture: str = "") -> str:
    """A weight's name in the file."""
    if name in OUTER:
        return OUTER[name]
    _, _, number, rest = name.split(".", 3)
    inner, _, last = rest.rpartition(".")
    if inner == "self_attn":
        return f"blk.{number}.attn_sinks.weight"
    if architecture in ("gpt-oss", "olmo2", *_GEMMA) and inner == "post_attention_layernorm":
        return f"blk.{number}.post_attention_norm.weight"
    return f"blk.{number}.{_INNER[inner]}.{last}"


def _in_pairs(rows: Floats, heads: int) -> Floats:
    """llama.cpp turns neighbouring rows of a head together, transformers those half a head apart."""
    halves = rows.reshape(heads, 2, -1, rows.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows.shape)


def numbers_in(file: Path, folder: Path) -> dict[str, Floats]:
    """The numbers of a file, dequantised by the package, by the names and in the order of its folder."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    tensors = {one.name: one for one in gguf.GGUFReader(file).tensors}
    found: dict[str, Floats] = {}
    for path in folder.glob("*.safetensors"):
        for name in stacked(load_file(path)):
            family = _ARCHITECTURES.get(config["model_type"], config["model_type"])
            called = called_in_file(name, family)
            stored = tensors[called]
            numbers = np.asarray(gguf.quants.dequantize(stored.data, stored.tensor_type), np.float32)
            if family in _GEMMA and "norm" in called:
                numbers = numbers - 1
            if family in _IN_PAIRS and called.endswith(("attn_q.weight", "attn_k.weight")):
                heads = config["num_attention_heads" if "attn_q" in called else "num_key_value_heads"]
                pairs = numbers.reshape(heads, -1, 2, numbers.shape[1])
                numbers = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(numbers.shape)
            if ".experts." in name:
                layer, _, of = name.partition(".experts.")
                found |= {f"{layer}.experts.{expert}.{of}": one for expert, one in enumerate(numbers)}
            else:
                found[name] = numbers
    return found
