"""How published weights are packed, and how many of them are held once a model is loaded."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from h2o_chat.models.model_class import class_of
from h2o_chat.models.model_files import StoredWeights, check_weights

UNPACKED = ("fp8", "mxfp4", "compressed-tensors")
"""Quantisations of published weights that transformers unpacks to 16 bits while loading."""


def packing(config: Any) -> str | None:
    """How the published weights are quantised."""
    stored = getattr(config, "quantization_config", None)
    return str(dict(stored).get("quant_method", "unknown method")) if stored else None


def has_experts(config: Any) -> bool:
    """Whether most weights are of experts, which stand in tensors that bitsandbytes leaves as they are."""
    text = config.get_text_config()
    return any(getattr(text, name, None) for name in ("num_experts", "num_local_experts", "n_routed_experts"))


def held_weights(folder: Path, config: Any) -> StoredWeights:
    """The weights that are held: those of the text part alone, unpacked to 16 bits if they are packed."""
    weights, unpacked = check_weights(folder), packing(config) in UNPACKED
    if not unpacked and config.get_text_config() is config:
        return weights
    config = copy.deepcopy(config)
    with torch.device("meta"):
        parameters = sum(one.numel() for one in class_of(config)(config).parameters())
    if unpacked:
        return replace(weights, parameters=parameters, bytes=2 * parameters, dtype="BF16")
    share = min(1.0, parameters / weights.parameters)
    return replace(weights, parameters=parameters, bytes=int(weights.bytes * share))
