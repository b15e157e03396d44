"""From what the user typed to a folder on this machine. Standard library only: errors must come at once.

No network, ever. A folder is a model when it holds a `config.json`; hub names and aliases are not known yet.
"""

import difflib
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from h2o_chat.errors import ModelError

PACKAGE = Path(__file__).resolve().parent
BUNDLED = (PACKAGE / "assets" / "pocket", PACKAGE.parent / "assets" / "pocket")
"""Where the bundled model lies in an installed wheel, and in a checkout."""


def find(name: str | None) -> Path:
    """The folder of a model.

    Raises:
        ModelError: nothing by that name; says what was looked for and where, and the nearest names.
    """
    if name is None:
        return _bundled()
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return folder
    if folder.is_dir():
        raise ModelError(f"{name} is not a model folder: it has no config.json.", _what_is_there(folder))
    if folder.is_file():
        raise ModelError(
            f"{name} is a file; a model is a folder with config.json, a tokenizer and safetensors weights.",
            "GGUF files are not read." if folder.suffix == ".gguf" else f"Try its folder: {folder.parent}",
        )
    raise _not_found(name, folder)


def read_config(folder: Path) -> dict[str, Any]:
    """`config.json` as it stands.

    Raises:
        ModelError: it cannot be read, or is not the configuration of a model.
    """
    config = _read_json(folder / "config.json")
    if not config.get("model_type"):
        raise ModelError(
            f"{folder / 'config.json'} names no model_type, so it is not clear which model this is.",
            "Expected a folder as written by transformers' save_pretrained().",
        )
    return config


@dataclass(frozen=True)
class Weights:
    """What the headers of the weight files say, without reading a weight."""

    parameters: int
    dtype: str
    """Of most parameters, as safetensors writes it: F32, F16, BF16 ..."""


def check_weights(folder: Path) -> Weights:
    """Reads the headers of all safetensors files.

    Raises:
        ModelError: there are none, a shard is missing, or a file is cut short or damaged.
    """
    by_dtype: dict[str, int] = {}
    for path in _weight_files(folder):
        for tensor in _header(path).values():
            count = 1
            for side in tensor["shape"]:
                count *= side
            by_dtype[tensor["dtype"]] = by_dtype.get(tensor["dtype"], 0) + count
    if not by_dtype:
        raise ModelError(f"The weight files in {folder} hold no tensors.", "Fetch them again.")
    return Weights(sum(by_dtype.values()), max(by_dtype, key=lambda dtype: by_dtype[dtype]))


def _bundled() -> Path:
    for folder in BUNDLED:
        if (folder / "config.json").is_file():
            return folder
    raise ModelError(
        "No model was named, and none is bundled with this version.",
        "Name a model folder: --model FOLDER (it holds config.json, a tokenizer and safetensors weights).",
    )


def _not_found(name: str, folder: Path) -> ModelError:
    beside = folder.parent if folder.parent.is_dir() else Path()
    models = sorted(path.parent.name for path in beside.glob("*/config.json"))
    near = difflib.get_close_matches(folder.name, models, n=3, cutoff=0.5)
    where = "the current folder" if beside == Path() else str(beside)
    hint = "Hub names and aliases are not known to this version: give the path of a downloaded folder."
    if near:
        hint = f"Did you mean {' or '.join(str(beside / one) for one in near)}? {hint}"
    elif models:
        hint = f"Models in {where}: {', '.join(models[:8])}. {hint}"
    return ModelError(
        f"No model {name!r}: looked for a folder {folder.absolute()} with config.json, there is none.", hint
    )


def _what_is_there(folder: Path) -> str:
    if any(folder.glob("*.gguf")):
        return "It holds GGUF files, which are not read: safetensors weights are needed."
    inside = sorted(path.parent.name for path in folder.glob("*/config.json"))
    if inside:
        return f"Models inside it: {', '.join(inside[:8])}."
    return "A model folder holds config.json, tokenizer.json and safetensors weights."


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    if not index.is_file():
        other = sorted(path.name for kind in ("*.bin", "*.pt", "*.pth") for path in folder.glob(kind))
        found = f" ({', '.join(other[:3])} is pickle, which can run code and is not read)" if other else ""
        raise ModelError(
            f"{folder} has no safetensors weights{found}.",
            "Expected model.safetensors, or model.safetensors.index.json and its shards.",
        )
    shards = _read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise ModelError(f"{index} has no weight_map.", "Fetch it again.")
    paths = [folder / str(shard) for shard in sorted(set(shards.values()))]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise ModelError(
            f"{folder} lacks {len(missing)} of {len(paths)} weight files: {', '.join(missing[:3])}.",
            "The download is not complete: fetch the missing files.",
        )
    return paths


def _header(path: Path) -> dict[str, Any]:
    """The tensors of one safetensors file: `{name: {dtype, shape, data_offsets}}`.

    Format: 8 bytes of header length, the header in JSON, the data (github.com/huggingface/safetensors).
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size + 1
        raw = file.read(length) if 8 + length <= size else b""
    try:
        header: dict[str, Any] = json.loads(raw)
        header.pop("__metadata__", None)
        end = max((tensor["data_offsets"][1] for tensor in header.values()), default=0)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ModelError(
            f"{path} is damaged: it has no readable safetensors header.",
            "Fetch the file again (a Git LFS pointer looks like this too).",
        ) from error
    if 8 + length + end != size:
        raise ModelError(
            f"{path} is damaged: {size:,} bytes, its header describes {8 + length + end:,}.",
            "The file is cut short or was changed: fetch it again.",
        )
    return header


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from error
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}.", "Fetch the file again.") from error
    if not isinstance(data, dict):
        raise ModelError(f"{path} does not hold a JSON object.", "Fetch the file again.")
    return data
