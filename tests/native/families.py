"""Random models of the families that the native step computes, in its sizes: heads of 16 numbers and more."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tiny_models import tiny

from h2o_chat.native.packed import Packed

Pack = Callable[[str, int], Packed]  # packs the model of that name in so many bits: the fixture `pack`

_SIZES = {
    "hidden_size": 64,
    "intermediate_size": 112,  # 7 tiles, and not a multiple of 32
    "head_dim": 16,
    "max_position_embeddings": 512,
    "vocab_size": 200,
}
_LINEAR = {"rope_type": "linear", "factor": 8.0, "rope_theta": 100000.0}
_NEAR = {"rope_type": "default", "rope_theta": 10000.0}
_YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 128}
_LONG = {
    **{"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75},
    "short_factor": [1.0 + 0.1 * pair for pair in range(12)],
    "long_factor": [2.0 + pair for pair in range(12)],
}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, as many KV heads": ("llama", {"num_key_value_heads": 4}),
    "llama, one KV head": ("llama", {"num_key_value_heads": 1}),
    "llama, 40 numbers": ("llama", {"hidden_size": 40}),  # of the library's 64
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, scaled RoPE": ("llama", {"rope_parameters": _YARN}),
    "mistral": ("mistral", {}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "qwen3_moe": ("qwen3_moe", {"head_dim": 32}),
    "olmoe": ("olmoe", {"num_experts": 20, "num_experts_per_tok": 3}),
    "smollm3": ("smollm3", {}),
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 24, "final_logit_softcapping": 3.0}),
    "gemma3_text": (
        "gemma3_text",
        {
            **{"head_dim": 32, "query_pre_attn_scalar": 20},
            "rope_parameters": {"full_attention": _LINEAR, "sliding_attention": _NEAR},
        },
    ),
    "phi3": ("phi3", {}),
    "phi3, three quarters turned, for long texts": (
        "phi3",
        {"hidden_size": 128, "head_dim": 32, "rope_parameters": _LONG}
        | {"original_max_position_embeddings": 256},
    ),
    "olmo2": ("olmo2", {}),
    "granite": (
        "granite",
        {
            **{"embedding_multiplier": 12.0, "residual_multiplier": 0.22},
            **{"attention_multiplier": 0.2, "logits_scaling": 3.0},
        },
    ),
}
"""Family, and what is special beside `_SIZES` and `tiny_models.py`."""


def saved(name: str, folder: Path) -> Path:
    """The folder of such a model."""
    family, special = MODELS[name]
    tiny(family, "eager", torch.float32, scale=0.2, **_SIZES | special).save_pretrained(folder)
    return folder
