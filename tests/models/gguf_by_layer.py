"""Tiny models of gemma4 and qwen35, whose layers differ, written as llama.cpp's converter writes them."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf_files import OUTER, Kind, add, finish, quantized, words
from torch import Tensor

_NAMES = {
    **OUTER,
    "model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
    "model.per_layer_model_projection.weight": "per_layer_model_proj.weight",
    "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
    "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
    "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
    "per_layer_input_gate.weight": "inp_gate.weight",
    "per_layer_projection.weight": "proj.weight",
    "post_per_layer_input_norm.weight": "post_norm.weight",
    "layer_scalar": "layer_output_scale.weight",
    "router.proj.weight": "ffn_gate_inp.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    **{f"mlp.{one}_proj.weight": f"ffn_{one}.weight" for one in ("gate", "up", "down")},
    **{f"mlp.shared_expert.{one}_proj.weight": f"ffn_{one}_shexp.weight" for one in ("gate", "up", "down")},
    **{f"self_attn.{one}_proj.weight": f"attn_{one}.weight" for one in "qkv"},
    **{f"self_attn.{one}_norm.weight": f"attn_{one}_norm.weight" for one in "qk"},
    "self_attn.o_proj.weight": "attn_output.weight",
}


def write_by_layer(
    model: Any,
    path: Path,
    kind: str = "F32",
    *,
    values: dict[str, Any] | None = None,
    tensors: dict[str, Any] | None = None,
    exact: bool = False,
) -> Path:
    """Writes a model of transformers as a file.

    Args:
        kind: type of the matrices whose columns come in its blocks.
        values: more values, or others; None: left out.
        tensors: more tensors in F32, or others; None: left out.
        exact: the numbers of that type, in F32.
    """
    config, gemma = model.config, model.config.model_type == "gemma4_text"
    architecture = "gemma4" if gemma else "qwen35moe" if "moe" in config.model_type else "qwen35"
    writer = gguf.GGUFWriter(path, architecture)
    words(writer, {"vocab_size": config.vocab_size})
    said = (_gemma4(config) if gemma else _qwen35(config)) | _of_all(config)
    for key, value in (
        {f"{architecture}.{name}": one for name, one in said.items()} | (values or {})
    ).items():
        writer.kv_data[0].pop(key, None)
        add(writer, key, value)
    found = _tensors(model, gemma)
    for name, numbers in (found | (tensors or {})).items():
        if numbers is None:
            continue
        rows = np.ascontiguousarray(numbers, np.float32)
        if kind == "F32" or rows.ndim < 2 or rows.shape[-1] % 32 or "conv1d" in name:
            writer.add_tensor(name, rows)
            continue
        blocks = quantized(rows.reshape(-1, rows.shape[-1]), kind)
        if exact:
            writer.add_tensor(name, gguf.quants.dequantize(blocks, Kind[kind]).reshape(rows.shape))
        else:
            writer.add_tensor(name, blocks.reshape(*rows.shape[:-1], -1), raw_dtype=Kind[kind])
    finish(writer)
    return path


def _of_all(config: Any) -> dict[str, Any]:
    return {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "attention.head_count": config.num_attention_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
    }


def _gemma4(config: Any) -> dict[str, Any]:
    layers, near = config.num_hidden_layers, [one == "sliding_attention" for one in config.layer_types]
    far, close = (config.per_layer_config[near.index(one)] for one in (False, True))
    said = {
        "feed_forward_length": config.intermediate_size,
        "attention.head_count_kv": close.num_key_value_heads,
        "attention.key_length": far.head_dim,
        "attention.value_length": far.head_dim,
        "attention.key_length_swa": close.head_dim,
        "attention.value_length_swa": close.head_dim,
        "attention.sliding_window": config.sliding_window,
        "attention.sliding_window_pattern": near,
        "attention.shared_kv_layers": config.num_kv_shared_layers,
        "embedding_length_per_layer_input": config.hidden_size_per_layer_input,
        "final_logit_softcapping": config.final_logit_softcapping,
        "rope.freq_base": config.rope_parameters["full_attention"]["rope_theta"],
        "rope.freq_base_swa": config.rope_parameters["sliding_attention"]["rope_theta"],
        "rope.dimension_count": far.head_dim,
        "rope.dimension_count_swa": close.head_dim,
    }
    if config.use_double_wide_mlp:
        first = layers - config.num_kv_shared_layers
        said["feed_forward_length"] = [config.intermediate_size * (1 + (at >= first)) for at in range(layers)]
    if config.attention_k_eq_v:
        heads = [config.per_layer_config[at].num_key_value_heads for at in range(layers)]
        said["attention.head_count_kv"] = heads
    if config.enable_moe_block:
        said["expert_count"], said["expert_used_count"] = config.num_experts, config.top_k_experts
        said["expert_feed_forward_length"] = config.moe_intermediate_size
    return said


def _qwen35(config: Any) -> dict[str, Any]:
    said = {
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.recurrent_layers": [one == "linear_attention" for one in config.layer_types],
        "full_attention_interval": config.layer_types.index("full_attention") + 1,
        "rope.freq_base": config.rope_parameters["rope_theta"],
        "rope.dimension_count": int(config.head_dim * config.rope_parameters["partial_rotary_factor"]),
        "rope.dimension_sections": [11, 11, 10, 0],
        "ssm.conv_kernel": config.linear_conv_kernel_dim,
        "ssm.state_size": config.linear_key_head_dim,
        "ssm.group_count": config.linear_num_key_heads,
        "ssm.time_step_rank": config.linear_num_value_heads,
        "ssm.inner_size": config.linear_num_value_heads * config.linear_value_head_dim,
    }
    if "moe" not in config.model_type:
        return said | {"feed_forward_length": config.intermediate_size}
    return said | {
        "expert_count": config.num_experts,
        "expert_used_count": config.num_experts_per_tok,
        "expert_feed_forward_length": config.moe_intermediate_size,
        "expert_shared_feed_forward_length": config.shared_expert_intermediate_size,
    }


def _tensors(model: Any, gemma: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        numbers = weight.float() if gemma else _for_llama_cpp(name, weight.float(), model.config)
        _, _, number, inner = f"{name}...".split(".", 3) if ".layers." in name else ("", "", "", "")
        inner = inner.removesuffix("...")
        start = f"blk.{number}." if inner else ""
        if inner == "mlp.experts.gate_up_proj":
            gate, up = numbers.chunk(2, 1)
            found |= {f"{start}ffn_gate_exps.weight": gate, f"{start}ffn_up_exps.weight": up}
        else:
            found[start + _NAMES[inner or name]] = numbers
    if gemma:
        far = model.model.rotary_emb.full_attention_inv_freq
        found["rope_freqs.weight"] = torch.where(far == 0, 1e30, 1.0)
    return found


def _for_llama_cpp(name: str, weight: Tensor, config: Any) -> Tensor:
    """Norms from 1 on, the decay itself, and heads of values reordered: the first of each key first."""
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    if name.endswith("A_log"):
        weight = -weight.exp()
    if name.endswith("norm.weight"):
        return weight if "linear_attn" in name else weight + 1
    if "linear_attn." not in name:
        return weight
    order = torch.arange(values).view(keys, -1).T.flatten()
    if name.endswith("out_proj.weight"):
        return weight.view(len(weight), values, -1)[:, order].reshape(weight.shape)
    first = 2 * keys * config.linear_key_head_dim if "qkv" in name or "conv1d" in name else 0
    rows = weight[first:].reshape(values, -1)[order].reshape(weight[first:].shape)
    return torch.cat([weight[:first], rows]).squeeze()
