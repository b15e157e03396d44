"""The frame of a GGUF file from its values alone, where they are plain; no model of transformers is made."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from h2o_chat.models.gguf import header_of
from h2o_chat.models.gguf_config import FAMILIES, config_of
from h2o_chat.native.model_frame import FROM_GGUF, MOST_EXPERTS, Frame, Turning, frame_from


def plain_frame(file: Path) -> Frame | None:
    """The frame; None where `probing.frame_of` has to look: another family, a scaled rotation, biases.

    It spares the import of the model's class, which takes a second.

    Raises:
        ModelError: the file is damaged.
    """
    frame = frame_without_rotations(file)
    if frame is None:
        return None
    config = config_of(header_of(file))
    rotations, types = _rotations(config), _types(config)
    interval = config.get("no_rope_layer_interval")
    turnings = {one: _turning(config, rotations[one]) for one in types}
    ropes = tuple(dict.fromkeys(turnings.values()))
    rope_of = tuple(
        None if interval and number % interval == interval - 1 else ropes.index(turnings[one])
        for number, one in enumerate(types)
    )
    return replace(frame, ropes=ropes, rope_of=rope_of)


def frame_without_rotations(file: Path) -> Frame | None:
    """The frame that places of weights follow from; None as in `plain_frame`. No torch.

    Raises:
        ModelError: the file is damaged.
    """
    header = header_of(file)
    if header.architecture not in FAMILIES:
        return None
    config = config_of(header)
    family, head_size, experts = config["model_type"], config["head_dim"], config.get("num_experts", 0)
    plain = all(one["rope_type"] in ("default", "linear") for one in _rotations(config).values())
    gpt_oss = family == FROM_GGUF
    if head_size % 16 or family == "phi3" or (not gpt_oss and (not plain or config.get("attention_bias"))):
        return None
    if experts and (config["hidden_size"] % 16 or experts > MOST_EXPERTS):
        return None
    return frame_from(
        SimpleNamespace(**config),
        head_size,
        bits=8,
        bias=gpt_oss or family == "qwen2",
        head_norms=family in ("qwen3", "qwen3_moe", "olmoe", "olmo2", "gemma3_text"),
        window_tokens=config["max_position_embeddings"],
        ropes=(),
        rope_of=(),
        sees=tuple(
            config["sliding_window"] if one == "sliding_attention" else None for one in _types(config)
        ),
    )


def _types(config: dict[str, Any]) -> list[str]:
    """The kind of attention of each layer."""
    return config.get("layer_types") or ["full_attention"] * config["num_hidden_layers"]


def _rotations(config: dict[str, Any]) -> dict[str, Any]:
    """The rotation of each kind of attention."""
    rotations = config["rope_parameters"]
    return rotations if "full_attention" in rotations else dict.fromkeys(_types(config), rotations)


def _turning(config: dict[str, Any], rotation: dict[str, Any]) -> Turning:
    """Computed by torch, as in transformers: the last bit is its own."""
    import torch

    if rotation["rope_type"] in ("default", "linear"):
        powers = torch.arange(0, config["head_dim"], 2, dtype=torch.int64).float() / config["head_dim"]
        inv_freq, scale = 1.0 / rotation["rope_theta"] ** powers / rotation.get("factor", 1.0), 1.0
    else:
        import transformers
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # slow: gpt_oss alone needs it

        made = transformers.AutoConfig.for_model(**config)
        inv_freq, scale = ROPE_INIT_FUNCTIONS[rotation["rope_type"]](made, torch.device("cpu"))
    return Turning(tuple(inv_freq.tolist()), float(scale))
