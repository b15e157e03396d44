"""Writes a model folder for onnxruntime-genai, with weights in int4. Runs in its environment.

    python onnx_genai_file.py MODEL_FOLDER FOLDER int4

Its own builder does it, with its own choices for a CPU; torch and transformers are those of this program. The
window is doubled: decoding goes on where a prompt has filled it. stdout: one JSON object with `token_bytes`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

BUILDER = "onnxruntime_genai.models.builder"


def write(folder: Path, path: Path) -> dict[str, int]:
    """Writes the folder `path`.

    Returns:
        `token_bytes`: the weights that one token reads: all, but of an untied embedding only a row.
    """
    config = json.loads((folder / "config.json").read_text("utf-8"))
    tied = bool(config.get("tie_word_embeddings"))
    with tempfile.TemporaryDirectory() as temporary:
        wide = Path(temporary) / "model"
        wide.mkdir()
        for file in folder.iterdir():
            if file.name != "config.json":
                (wide / file.name).symlink_to(file.resolve())
        config["max_position_embeddings"] *= 2
        (wide / "config.json").write_text(json.dumps(config), "utf-8")
        command = [sys.executable, "-m", BUILDER, "-i", wide, "-o", path, "-p", "int4", "-e", "cpu"]
        options = [
            "prune_lm_head=true",
            f"shared_embeddings={str(tied).lower()}",
        ]  # logits of the last token alone
        command += ["-c", Path(temporary) / "cache", "--extra_options", *options]
        subprocess.run(list(map(str, command)), check=True, stdout=sys.stderr)
    return {"token_bytes": _token_bytes(path / "model.onnx", tied)}


def _token_bytes(file: Path, tied: bool) -> int:
    total = 0
    for one in onnx.load(str(file), load_external_data=False).graph.initializer:
        where = {entry.key: entry.value for entry in one.external_data}
        looked_up = "cos_cache" in one.name or "sin_cache" in one.name
        if not looked_up and (tied or "embed_tokens" not in one.name):
            total += int(where["length"]) if "length" in where else one.ByteSize()
    return total


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("path", type=Path)
    parser.add_argument("form", choices=("int4",))
    asked = parser.parse_args()
    sys.stdout.write(json.dumps(write(asked.folder, asked.path)) + "\n")
