"""Tiny models as folders and as GGUF files."""

from pathlib import Path
from typing import Any

import torch
from tiny_models import tiny

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
_NEAR_AND_FAR = {
    "query_pre_attn_scalar": 32,
    "layer_types": ["sliding_attention", "full_attention"],
    "max_position_embeddings": 512,
}
CHANGES: dict[str, dict[str, Any]] = {
    "qwen2": FULL,
    "qwen3": FULL,
    "olmoe": {"head_dim": 16},
    "gemma2": _NEAR_AND_FAR,
    "gemma3_text": _NEAR_AND_FAR,
    "phi3": {"pad_token_id": 0},
    "smollm3": {"num_hidden_layers": 5, "no_rope_layers": [1, 1, 1, 0, 1], "pad_token_id": 0},
}
"""The fourth layer of smollm3 turns no keys."""


def folder_of(family: str, folder: Path, **changes: Any) -> Path:
    tiny(family, "eager", torch.float32, **SIZES | changes).save_pretrained(folder)
    return folder
