"""Writes a model folder (llama, mistral) as a GGUF file. Runs in the peers' environment, as a script.

    python gguf_file.py MODEL_FOLDER FILE q4_0|q8_0

There is no tokenizer in it: speed does not depend on one. Nothing of h2o_chat is imported here: the
environment has numpy, gguf and llama_cpp alone. stdout: one JSON object, see `write`.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from weights import Config, Floats, read_config, read_tensors

FORMATS = {"q4_0": "Q4_0", "q8_0": "Q8_0"}
"""Forms and their names in GGUF."""
OUTER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
INNER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Names in safetensors and in GGUF."""


def write(folder: Path, path: Path, form: str) -> dict[str, int]:
    """Writes `path`, whole or not at all.

    Returns:
        `token_bytes`: the weights that one token reads: all, but of an untied embedding only a row.

    Raises:
        SystemExit: a family or shape that is not written here.
    """
    config = read_config(folder)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    writer = gguf.GGUFWriter(str(partial), "llama")
    _describe(writer, config)
    kind = gguf.GGMLQuantizationType[FORMATS[form]]
    tied, token_bytes = config["tie_word_embeddings"], 0
    for name, tensor in read_tensors(folder):
        if name == "lm_head.weight" and tied:
            continue
        called = _called(name)
        if called.endswith(("attn_q.weight", "attn_k.weight")):
            heads = config["num_attention_heads"] if "attn_q" in called else config["num_key_value_heads"]
            tensor = _for_interleaved_rope(tensor, heads)
        if tensor.ndim == 1:
            stored = tensor
            writer.add_tensor(called, stored)
        else:
            stored = gguf.quants.quantize(tensor, kind)
            writer.add_tensor(called, stored, raw_dtype=kind)
        if tied or called != "token_embd.weight":
            token_bytes += stored.nbytes
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(path)
    return {"token_bytes": token_bytes}


def _describe(writer: Any, config: Config) -> None:
    size = config["head_dim"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_rope_dimension_count(size)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")


def _called(name: str) -> str:
    """Its name in GGUF."""
    if name in OUTER:
        return OUTER[name]
    parts = name.split(".", 3)  # model.layers.N.self_attn.q_proj.weight
    inner = parts[3].removesuffix(".weight") if len(parts) > 3 else name
    if inner not in INNER:
        sys.exit(f"The tensor {name} is not known here.")
    return f"blk.{parts[2]}.{INNER[inner]}.weight"


def _for_interleaved_rope(tensor: Floats, heads: int) -> Floats:
    """llama.cpp turns neighbouring components of a head; transformers those half a head apart."""
    rows, columns = tensor.shape
    halves = tensor.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows, columns)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("path", type=Path)
    parser.add_argument("form", choices=FORMATS)
    asked = parser.parse_args()
    sys.stdout.write(json.dumps(write(asked.folder, asked.path, asked.form)) + "\n")
