"""Writes a model folder (llama, mistral) for ctranslate2, with weights in int8. Runs in its environment.

    python ctranslate_file.py MODEL_FOLDER FOLDER int8

Its tokens are `t0`, `t1`, ...: ids are fed, no text. stdout: one JSON object with `token_bytes`.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ctranslate2.converters import utils
from ctranslate2.specs import common_spec, transformer_spec
from weights import Config, Floats, read_config, read_tensors


def write(folder: Path, path: Path) -> dict[str, int]:
    """Writes the folder `path`.

    Returns:
        `token_bytes`: the weights that one token reads: all, but of an untied embedding only a row.
    """
    config = read_config(folder)
    spec = _spec(config, dict(read_tensors(folder)))
    spec.register_vocabulary([f"t{number}" for number in range(config["vocab_size"])])
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "t1", "t2", "t0"
    spec.config.layer_norm_epsilon = config["rms_norm_eps"]
    spec.validate()
    spec.optimize(quantization="int8")
    path.mkdir(parents=True, exist_ok=True)
    spec.save(str(path))
    embedding_bytes = 0 if config["tie_word_embeddings"] else config["vocab_size"] * config["hidden_size"]
    return {"token_bytes": (path / "model.bin").stat().st_size - embedding_bytes}


def _spec(config: Config, tensors: dict[str, Floats]) -> Any:
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    spec = transformer_spec.TransformerDecoderModelSpec.from_config(
        config["num_hidden_layers"],
        heads,
        activation=common_spec.Activation.SWISH,
        pre_norm=True,
        ffn_glu=True,
        rms_norm=True,
        rotary_dim=0,
        rotary_interleave=False,
        rotary_base=config["rope_theta"],
        num_heads_kv=kv_heads if kv_heads != heads else None,
        head_dim=config["head_dim"],
    )
    decoder = spec.decoder
    decoder.scale_embeddings = False
    decoder.embeddings.weight = tensors["model.embed_tokens.weight"]
    decoder.layer_norm.gamma = tensors["model.norm.weight"]
    decoder.projection.weight = (
        decoder.embeddings.weight if config["tie_word_embeddings"] else tensors["lm_head.weight"]
    )
    for number, layer in enumerate(decoder.layer):
        mine = f"model.layers.{number}."
        layer.self_attention.layer_norm.gamma = tensors[f"{mine}input_layernorm.weight"]
        layer.ffn.layer_norm.gamma = tensors[f"{mine}post_attention_layernorm.weight"]
        fused = [common_spec.LinearSpec() for _ in range(3)]
        for one, name in zip(fused, "qkv", strict=True):
            one.weight = tensors[f"{mine}self_attn.{name}_proj.weight"]
        utils.fuse_linear(layer.self_attention.linear[0], fused)
        layer.self_attention.linear[1].weight = tensors[f"{mine}self_attn.o_proj.weight"]
        layer.ffn.linear_0.weight = tensors[f"{mine}mlp.gate_proj.weight"]
        layer.ffn.linear_0_noact.weight = tensors[f"{mine}mlp.up_proj.weight"]
        layer.ffn.linear_1.weight = tensors[f"{mine}mlp.down_proj.weight"]
    return spec


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("path", type=Path)
    parser.add_argument("form", choices=("int8",))
    asked = parser.parse_args()
    sys.stdout.write(json.dumps(write(asked.folder, asked.path)) + "\n")
