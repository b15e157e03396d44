"""Reads a model folder (llama, mistral) with numpy alone, for the scripts beside it."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Config = dict[str, Any]

FAMILIES = ("llama", "mistral")
DTYPES: dict[str, tuple[str, Callable[[Any], Floats]]] = {
    "BF16": ("<u2", lambda raw: (raw.astype(np.uint32) << 16).view(np.float32)),
    "F16": ("<f2", lambda raw: raw.astype(np.float32)),
    "F32": ("<f4", lambda raw: raw.astype(np.float32)),
}


def read_config(folder: Path) -> Config:
    """Its config.json; `num_key_value_heads`, `head_dim` and `rope_theta` are always there.

    Raises:
        SystemExit: a family or shape that is not written here.
    """
    config: Config = json.loads((folder / "config.json").read_text("utf-8"))
    if config["model_type"] not in FAMILIES:
        sys.exit(f"{folder} is a {config['model_type']} model. Only {', '.join(FAMILIES)} are written.")
    if not config["vocab_size"] or config["hidden_size"] % 32 or config["intermediate_size"] % 32:
        sys.exit(f"{folder}: hidden_size and intermediate_size must be multiples of 32.")
    rope = config.get("rope_parameters") or config
    if rope.get("rope_type", "default") != "default" or config.get("rope_scaling"):
        sys.exit(f"{folder}: scaled RoPE is not written here.")
    heads = config["num_attention_heads"]
    return config | {
        "num_key_value_heads": int(config.get("num_key_value_heads") or heads),
        "head_dim": int(config.get("head_dim") or config["hidden_size"] // heads),
        "rope_theta": float(rope.get("rope_theta", 10_000.0)),
        "tie_word_embeddings": bool(config.get("tie_word_embeddings")),
    }


def read_tensors(folder: Path) -> Iterator[tuple[str, Floats]]:
    """Name and numbers of every tensor of the safetensors files."""
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as stream:
            header_bytes = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(header_bytes))
        data = np.memmap(file, np.uint8, "r", 8 + header_bytes)
        for name, about in header.items():
            if name == "__metadata__":
                continue
            first, end = about["data_offsets"]
            stored, widen = DTYPES[about["dtype"]]
            yield name, widen(np.array(data[first:end]).view(stored)).reshape(about["shape"])
