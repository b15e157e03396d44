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

    It spares the import of the model's class, which takes a second. Only gpt_oss has windows: in every
    second layer.

    Raises:
        ModelError: the file is damaged.
    """
    header = header_of(file)
    if header.architecture not in FAMILIES:
        return None
    config = config_of(header)
    family, layers, head_size = config["model_type"], config["num_hidden_layers"], config["head_dim"]
    rotation, experts, scale = config["rope_parameters"], config.get("num_experts", 0), 1.0
    gpt_oss = family == FROM_GGUF
    if head_size % 16 or (
        not gpt_oss and (rotation["rope_type"] != "default" or config.get("attention_bias"))
    ):
        return None
    if experts and (config["hidden_size"] % 16 or experts > MOST_EXPERTS):
        return None
    interval = config.get("no_rope_layer_interval")
    powers = torch.arange(0, head_size, 2, dtype=torch.int64).float() / head_size
    inv_freq = 1.0 / rotation["rope_theta"] ** powers  # by torch, as in transformers: the last bit is its own
    if gpt_oss and rotation["rope_type"] != "default":
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # slow, and no other family needs it

        made = transformers.AutoConfig.for_model(**config)
        inv_freq, scale = ROPE_INIT_FUNCTIONS[rotation["rope_type"]](made, torch.device("cpu"))
    return frame_from(
        SimpleNamespace(**config),
        head_size,
        bits=8,
        bias=gpt_oss or family == "qwen2",
        head_norms=family in ("qwen3", "qwen3_moe", "olmoe"),
        window_tokens=config["max_position_embeddings"],
        ropes=(Turning(tuple(inv_freq.tolist()), float(scale)),),
        rope_of=tuple(
            None if interval and number % interval == interval - 1 else 0 for number in range(layers)
        ),
        sees=tuple(config["sliding_window"] if gpt_oss and at % 2 == 0 else None for at in range(layers)),
    )
