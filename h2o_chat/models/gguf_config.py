"""Configuration, names and shapes of a GGUF file's model in transformers' terms. No torch.

transformers also reads configurations of GGUF files, but neither scaled rotations nor the head size of qwen3:
the families below are read here, and each weight's shape is checked against the configuration. A value or a
tensor that is missing or wrong raises ModelError.
"""

import math
import re
from collections.abc import Set
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

from h2o_chat.base.errors import ModelError
from h2o_chat.models import gguf, gguf_variants
from h2o_chat.models.gguf import Header, damaged, header_of
from h2o_chat.models.gguf_variants import LONG_ROPE, ROPE_FREQS, rope_factors

FAMILIES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "qwen3moe": "Qwen3MoeForCausalLM",
    "olmoe": "OlmoeForCausalLM",
    "gpt-oss": "GptOssForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "granite": "GraniteForCausalLM",
}
"""Architectures of the native step, and their class in transformers. Mistral's architecture is llama."""

READ = FAMILIES | {"gemma4": "Gemma4ForCausalLM"}
"""All architectures that are read here."""

_TYPES = {
    **{"qwen3moe": "qwen3_moe", "gpt-oss": "gpt_oss", "gemma3": "gemma3_text", "gemma4": "gemma4_text"},
    **{"qwen35": "qwen3_5_text", "qwen35moe": "qwen3_5_moe_text"},
}
"""Types of transformers that are not called as the architecture is."""

EXACT = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
"""Types of which the native step takes levels and scales as they are; it rounds others to 8 bits."""

PLAIN = {"F32", "F16", "BF16"}
"""Types of tensors that are not quantised."""

_KNOWN = re.compile(
    r"(gemma4|qwen35|qwen35moe)\.("
    r"vocab_size|context_length|block_count|nextn_predict_layers|final_logit_softcapping"
    r"|embedding_length(_per_layer_input)?|(expert_|expert_shared_)?feed_forward_length|expert_(used_)?count"
    r"|attention\.(head_count(_kv)?|(key|value)_length(_swa)?|layer_norm_rms_epsilon|sliding_window(_pattern)?"
    r"|shared_kv_layers|recurrent_layers)|full_attention_interval|rope\.((freq_base|dimension_count)(_swa)?"
    r"|dimension_sections)|ssm\.(conv_kernel|state_size|group_count|time_step_rank|inner_size))"
)
"""Values of those architectures that are read, or that the shapes of the tensors show."""
ENDS = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<end_of_turn>", "<|end_of_text|>"),
    *("<|eom_id|>", "<turn|>", "<|tool_response>", "<|return|>", "<|call|>"),
)
"""Tokens that end an answer by their name alone, whatever the file says of them (as in llama.cpp)."""


@lru_cache(maxsize=2)
def config_of(header: Header) -> dict[str, Any]:
    """The contents of config.json and generation_config.json, with checked shapes of all tensors.

    For architectures outside `READ` it has only `model_type`: transformers reads the rest.
    """
    kind = header.architecture
    layers = header.values.get(f"{kind}.block_count")
    if isinstance(layers, int) and layers > len(header.tensors):  # before lists of that length are made
        raise damaged(header.path, f"{layers:,} layers in {len(header.tensors):,} tensors")
    if unread := _unread(header):
        raise ModelError(
            f"{header.path} has {unread[0][:60]}, which is not read from {kind[:60]} files.",
            "Use the model's safetensors.",
        )
    if kind not in READ:
        if len(header.parts) > 1:
            raise ModelError(
                f"{header.path} is one of several parts, of the architecture {kind[:60]}, of which"
                " whole files alone are read.",
                "Join them: llama-gguf-split --merge FIRST-PART WHOLE",
            )
        return {"model_type": _TYPES.get(kind, kind), "architectures": []}
    hidden = header.whole(f"{kind}.embedding_length")
    heads = header.whole(f"{kind}.attention.head_count")
    tokens, *_ = _shape(header, "token_embd.weight", 2)
    config: dict[str, Any] = {
        "model_type": _TYPES.get(kind, kind),
        "architectures": [READ[kind]],
        "vocab_size": tokens,
        "hidden_size": hidden,
        "num_hidden_layers": header.whole(f"{kind}.block_count"),
        "num_attention_heads": heads,
        "max_position_embeddings": header.whole(f"{kind}.context_length"),
        "rms_norm_eps": header.number(f"{kind}.attention.layer_norm_rms_epsilon"),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "bos_token_id": header.token("tokenizer.ggml.bos_token_id"),
        "eos_token_id": _ends(header),
        "pad_token_id": header.token("tokenizer.ggml.padding_token_id"),
    }
    if kind == "gemma4":
        return config | gguf_variants.gemma4_config(header)
    head_size = header.whole(f"{kind}.attention.key_length", max(1, hidden // heads))
    config |= {
        "hidden_act": "silu",
        "intermediate_size": header.whole(f"{kind}.feed_forward_length"),
        "num_key_value_heads": header.whole(f"{kind}.attention.head_count_kv", heads),
        "head_dim": head_size,
        "rope_parameters": _rotation(header, kind, head_size),
    }
    if kind == "smollm3":
        config["no_rope_layer_interval"] = 4  # as in llama.cpp (src/models/smollm3.cpp): no file says it
    if kind == "llama":
        config["attention_bias"] = "blk.0.attn_q.bias" in header.tensors
    if kind == "gpt-oss":
        config |= {
            "attention_bias": True,
            "sliding_window": header.whole(f"{kind}.attention.sliding_window"),
            "layer_types": [
                "full_attention" if number % 2 else "sliding_attention"
                for number in range(config["num_hidden_layers"])
            ],
            "rope_parameters": config["rope_parameters"] | {"truncate": False},
        }
    if kind in ("qwen3moe", "olmoe", "gpt-oss"):
        inner = header.whole(f"{kind}.expert_feed_forward_length", config["intermediate_size"])
        config |= {
            "intermediate_size": inner,
            "moe_intermediate_size": inner,
            "num_experts": header.whole(f"{kind}.expert_count"),
            "num_experts_per_tok": header.whole(f"{kind}.expert_used_count"),
            "norm_topk_prob": kind != "olmoe",  # as in llama.cpp: files do not say it
        }
        if (taken := config["num_experts_per_tok"]) > config["num_experts"]:
            raise damaged(header.path, f"a token takes {taken:,} of {config['num_experts']:,} experts")
    config |= gguf_variants.config_of_variant(header, config)
    _check_tensors(header, config)
    return config


def _unread(header: Header) -> list[str]:
    """Values and tensors that the model computes with, and that are not read."""
    kind = header.architecture
    if kind in FAMILIES:
        return []
    if kind not in ("gemma4", "qwen35", "qwen35moe"):
        values = [one for one in header.values if ".rope.scaling." in one]
        return values or [one for one in header.tensors if "rope_" in one]
    unread = [one for one in header.values if one.startswith(f"{kind}.") and not _KNOWN.fullmatch(one)]
    interval = header.whole(f"{kind}.full_attention_interval", 4)
    guessing = f"{kind}.nextn_predict_layers"  # layers for further tokens, which are left out
    guesses = header.whole(guessing) if header.values.get(guessing) else 0
    layers, pattern = header.whole(f"{kind}.block_count") - guesses, f"{kind}.attention.recurrent_layers"
    kinds = [bool(one) for one in header.numbers(pattern)][:layers]
    head, turned = f"{kind}.attention.key_length", f"{kind}.rope.dimension_count"
    if header.whole(turned, 1) > header.whole(head):
        raise damaged(
            header.path, f"{turned} is {header.whole(turned):,}, and a head has {header.whole(head):,}"
        )
    regular = [number % interval < interval - 1 for number in range(layers)]
    return unread if kinds in ([], regular) else [pattern]


def forget() -> None:
    """Drops cached headers: a large vocabulary takes 30 MB, and is only needed to open a model."""
    config_of.cache_clear()
    gguf.forget()


def names_of(config: dict[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """(name in the file, shape) of each weight, by its name in transformers; experts stand in one tensor."""
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    kind, tokens = config["model_type"], config["vocab_size"]
    found: dict[str, tuple[str, tuple[int, ...]]] = {
        "model.embed_tokens.weight": ("token_embd.weight", (tokens, hidden)),
        "model.norm.weight": ("output_norm.weight", (hidden,)),
    }
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = ("output.weight", (tokens, hidden))
    layer: dict[str, tuple[str, tuple[int, ...]]] = {
        "input_layernorm.weight": ("attn_norm.weight", (hidden,)),
        "self_attn.q_proj.weight": ("attn_q.weight", (queries, hidden)),
        "self_attn.k_proj.weight": ("attn_k.weight", (keys, hidden)),
        "self_attn.v_proj.weight": ("attn_v.weight", (keys, hidden)),
        "self_attn.o_proj.weight": ("attn_output.weight", (hidden, queries)),
        "post_attention_layernorm.weight": ("ffn_norm.weight", (hidden,)),
    }
    mlp = {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
    count: int = config.get("num_experts", 0)
    if count:
        router = "router" if kind == "gpt_oss" else "gate"
        layer[f"mlp.{router}.weight"] = ("ffn_gate_inp.weight", (count, hidden))
        layer |= {
            f"mlp.experts.{one}_proj.weight": (f"ffn_{one}_exps.weight", (count, *shape))
            for one, shape in mlp.items()
        }
    else:
        layer |= {f"mlp.{one}_proj.weight": (f"ffn_{one}.weight", shape) for one, shape in mlp.items()}
    if kind == "qwen2" or config.get("attention_bias"):
        layer |= {
            f"self_attn.{one}_proj.bias": (f"attn_{one}.bias", (rows,))
            for one, rows in {"q": queries, "k": keys, "v": keys}.items()
        }
    if config.get("attention_bias"):
        layer["self_attn.o_proj.bias"] = ("attn_output.bias", (hidden,))
    if kind == "gpt_oss":
        layer |= {
            "self_attn.sinks": ("attn_sinks.weight", (config["num_attention_heads"],)),
            "post_attention_layernorm.weight": ("post_attention_norm.weight", (hidden,)),
            "mlp.router.bias": ("ffn_gate_inp.bias", (count,)),
        }
        layer |= {
            f"mlp.experts.{one}_proj.bias": (f"ffn_{one}_exps.bias", (count, shape[0]))
            for one, shape in mlp.items()
        }
    if kind in ("qwen3", "qwen3_moe", "olmoe", "olmo2", "gemma3_text"):
        whole = kind in ("olmoe", "olmo2")
        layer["self_attn.q_norm.weight"] = ("attn_q_norm.weight", (queries if whole else head,))
        layer["self_attn.k_norm.weight"] = ("attn_k_norm.weight", (keys if whole else head,))
    layer = gguf_variants.named(kind, config, layer)
    for number in range(config["num_hidden_layers"]):
        found |= {
            f"model.layers.{number}.{name}": (f"blk.{number}.{there}", shape)
            for name, (there, shape) in layer.items()
        }
    return found


def turned_heads(config: dict[str, Any], name: str) -> int:
    """Heads of a weight whose rows are stored in rotation pairs; 0: in transformers' order."""
    if config["model_type"] not in ("llama", "smollm3", "granite"):
        return 0
    if ".q_proj." in name:
        return int(config["num_attention_heads"])
    return int(config["num_key_value_heads"]) if ".k_proj." in name else 0


def why_slow(model: Path) -> str:
    """Why a model takes minutes to open every time; empty if it does not."""
    if model.is_dir() or (kind := header_of(model).architecture) in FAMILIES:
        return ""
    return f"it is a GGUF file of the architecture {kind[:60]}, which transformers reads, and slowly"


def held_as(header: Header) -> tuple[str, int]:
    """The types of its matrices in the native step's memory, those of most bytes first, and their bytes."""
    held = dict[str, int]()
    for one in header.tensors.values():
        if len(one.shape) < 2:
            continue
        kind, size = one.kind_name, one.bytes
        if kind == "MXFP4":  # 5 bits and a scale of 2 bytes there
            size = prod(one.shape) * 11 // 16
        elif kind not in EXACT:
            kind, size = "int8", prod(one.shape) * 17 // 16
        elif kind in ("Q4_K", "Q5_K"):  # scales of 6 bits take a byte there
            size += prod(one.shape) // 64
        held[kind] = held.get(kind, 0) + size
    return ", ".join(sorted(held, key=lambda kind: -held[kind])), sum(held.values())


def _check_tensors(header: Header, config: dict[str, Any]) -> None:
    if config["num_attention_heads"] % config["num_key_value_heads"] or config["head_dim"] % 2:
        raise damaged(
            header.path,
            f"{config['num_attention_heads']:,} heads of {config['head_dim']:,} numbers share"
            f" {config['num_key_value_heads']:,} KV heads",
        )
    known = dict(names_of(config).values())
    for name, shape in known.items():
        found = _shape(header, name, len(shape))
        if found != shape:
            raise damaged(header.path, f"{name} has the shape {list(found)}, its values say {list(shape)}")
        if len(shape) == 1 and header.tensors[name].kind_name not in PLAIN:
            raise damaged(header.path, f"{name} is {header.tensors[name].kind_name}, and vectors are numbers")
    ropes = {*LONG_ROPE.values()} if header.architecture == "phi3" else {ROPE_FREQS}
    refuse_others(header, known.keys() | ropes)


def refuse_others(header: Header, known: Set[str]) -> None:
    """Refuses a file with tensors beside the known ones."""
    if other := sorted(header.tensors.keys() - known):
        what = (
            "it is a mixture of experts of another family"
            if any("_exps" in one or "_inp" in one for one in other)
            else "what they do is not known here"
        )
        raise ModelError(
            f"{header.path} holds {len(other):,} tensors that a {header.architecture} model has not"
            f" ({', '.join(one[:60] for one in other[:3])}): {what}.",
            f"Architectures that are read: {', '.join(READ)}.",
        )


def _shape(header: Header, name: str, dimensions: int) -> tuple[int, ...]:
    found = header.tensors.get(name)
    if found is None:
        raise damaged(header.path, f"it lacks {name}")
    if len(found.shape) != dimensions:
        raise damaged(header.path, f"{name} has the shape {list(found.shape)}")
    return found.shape


def _rotation(header: Header, kind: str, head_size: int) -> dict[str, Any]:
    turned = header.whole(f"{kind}.rope.dimension_count", head_size)
    if turned != head_size and kind != "phi3":
        raise damaged(header.path, f"{turned} of the {head_size} numbers of a head are turned")
    theta = header.number(f"{kind}.rope.freq_base", 10_000.0)
    scaled = header.text(f"{kind}.rope.scaling.type", "none")
    if kind == "phi3" and scaled == "longrope":  # its tensors say so (`gguf_variants.py`)
        scaled = "none"
    factor = f"{kind}.rope.scaling.factor"
    if ROPE_FREQS in header.tensors:
        return {"rope_type": "llama3", "rope_theta": theta} | _llama_3(header, theta, head_size)
    if scaled == "none" or (scaled == "linear" and factor not in header.values):
        return {"rope_type": "default", "rope_theta": theta}
    usual = {f"{kind}.rope.scaling.yarn_beta_fast": 32.0, f"{kind}.rope.scaling.yarn_beta_slow": 1.0}
    strange = [
        key
        for key, value in header.values.items()
        if (".rope.scaling.yarn_" in key or key.endswith(".attn_factor")) and value != usual.get(key)
    ]
    if scaled == "linear" or (scaled == "yarn" and not strange):
        scaling = {"rope_type": scaled, "rope_theta": theta, "factor": header.number(factor)}
        if scaled == "yarn":
            original = f"{kind}.rope.scaling.original_context_length"
            scaling["original_max_position_embeddings"] = header.whole(original)
        return scaling
    raise _unknown_rotation(header, scaled[:60])


def _llama_3(header: Header, theta: float, head_size: int) -> dict[str, Any]:
    """Llama 3's parameters: the file has only the factor of each frequency, which is compared with them."""
    found = rope_factors(header, head_size)
    factor = max(found)
    original, low, high = 8192, 1.0, 4.0
    for number, one in enumerate(found):
        turns = original / (2 * math.pi * theta ** (2 * number / head_size))
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        expected = 1 / ((1 - smooth) / factor + smooth) if factor >= 1 else math.nan
        if not math.isclose(one, expected, rel_tol=1e-3):
            what = f"factor {number} of {ROPE_FREQS} is {one:.6g}, and llama 3 has {expected:.6g}"
            raise _unknown_rotation(header, what)
    scaled = {"low_freq_factor": low, "high_freq_factor": high, "original_max_position_embeddings": original}
    return {"factor": factor} | scaled


def _unknown_rotation(header: Header, what: str) -> ModelError:
    message = f"{header.path} scales its rotation in a way that is not known here ({what})."
    return ModelError(message, "Known: none, linear, yarn, and that of llama 3.")


def _ends(header: Header) -> list[int]:
    """Tokens that end an answer: those that the file names, and those of `ENDS`.

    `<|end|>` ends gpt-oss' thought, not its answer, which `<|return|>` or `<|call|>` ends.
    """
    named = [header.token(f"tokenizer.ggml.{one}_token_id") for one in ("eos", "eot", "eom")]
    ends = [one for one in named if one is not None]
    tokens = header.texts("tokenizer.ggml.tokens")
    ends += [number for number, token in enumerate(tokens) if token in ENDS and number not in ends]
    if {"<|return|>", "<|call|>"} <= {tokens[one] for one in ends}:
        ends = [one for one in ends if tokens[one] != "<|end|>"]
    return ends
