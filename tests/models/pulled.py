"""What tests of fetched models share: models to fetch, where they go, how a refusal reads."""

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from hub_server import COMMIT, Repository

from h2o_chat.base.errors import ExitCode

PROGRAM = [sys.executable, "-m", "h2o_chat"]
MIB = 1 << 20
Call = Callable[..., subprocess.CompletedProcess[str]]


def weights(mib: int = 1, seed: int = 0) -> bytes:
    """A safetensors file with one tensor of so many MiB."""
    size = mib * MIB
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes([seed]) * size


def repository(content: bytes, **more: object) -> Repository:
    """A model as people publish them: with much that is not needed."""
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    files = {
        "config.json": json.dumps(config).encode(),
        "tokenizer.json": b"{}",
        "README.md": b"# A model",
        "model.safetensors": content,
        "pytorch_model.bin": b"\0" * 100,
        "original/consolidated.safetensors": b"\0" * 100,
    }
    return Repository(files, **more)  # type: ignore[arg-type]


def snapshot(tmp_path: Path, name: str) -> Path:
    return tmp_path / "hf" / "hub" / f"models--{name.replace('/', '--')}" / "snapshots" / COMMIT


# -- what does not


def refused(done: subprocess.CompletedProcess[str], *said: str) -> None:
    """Ended as an error of a model does, with these words and without a traceback."""
    assert done.returncode == ExitCode.MODEL, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert all(words in done.stderr for words in said), done.stderr
