"""The frame of a GGUF file from its values alone, where they are plain; no model of transformers is made."""

from pathlib import Path
from types import SimpleNamespace

import torch
import transformers

from h2o_chat.models.gguf import header_of
from h2o_chat.models.gguf_config import FAMILIES, config_of
from h2o_chat.native.model_frame import FROM_GGUF, MOST_EXPERTS, Frame, Turning, frame_from


def plain_frame(file: Path) -> Frame | None:
    """The frame; None where `probing.frame_of` has to look: another family, a scaled rotation, biases.

    It spares the import of the model's class, which takes a second.

    Raises:
        ModelError: the file is damaged.
    """
    header = header_of(file)
    if header.architecture not in FAMILIES:
        return None
    config = config_of(header)
    family, layers, head_size = config["model_type"], config["num_hidden_layers"], config["head_dim"]
    rotations, experts, scale = config["rope_parameters"], config.get("num_experts", 0), 1.0
    types = config.get("layer_types") or ["full_attention"] * layers
    by_type = rotations if "full_attention" in rotations else dict.fromkeys(types, rotations)
    plain = all(one["rope_type"] in ("default", "linear") for one in by_type.values())
    gpt_oss = family == FROM_GGUF
    if head_size % 16 or family == "phi3" or (not gpt_oss and (not plain or config.get("attention_bias"))):
        return None
    if experts and (config["hidden_size"] % 16 or experts > MOST_EXPERTS):
        return None
    interval = config.get("no_rope_layer_interval")
    turnings = dict[str, Turning]()
    for one in types:
        rotation = by_type[one]
        powers = torch.arange(0, head_size, 2, dtype=torch.int64).float() / head_size
        # By torch, as in transformers: the last bit is its own.
        inv_freq = 1.0 / rotation["rope_theta"] ** powers / rotation.get("factor", 1.0)
        if not plain:
            from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # slow: gpt_oss alone needs it

            made = transformers.AutoConfig.for_model(**config)
            inv_freq, scale = ROPE_INIT_FUNCTIONS[rotation["rope_type"]](made, torch.device("cpu"))
        turnings.setdefault(one, Turning(tuple(inv_freq.tolist()), float(scale)))
    ropes = tuple(dict.fromkeys(turnings.values()))
    return frame_from(
        SimpleNamespace(**config),
        head_size,
        bits=8,
        bias=gpt_oss or family == "qwen2",
        head_norms=family in ("qwen3", "qwen3_moe", "olmoe", "olmo2", "gemma3_text"),
        window_tokens=config["max_position_embeddings"],
        ropes=ropes,
        rope_of=tuple(
            None if interval and number % interval == interval - 1 else ropes.index(turnings[one])
            for number, one in enumerate(types)
        ),
        sees=tuple(config["sliding_window"] if one == "sliding_attention" else None for one in types),
    )
