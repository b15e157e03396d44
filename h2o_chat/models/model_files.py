"""Reads the configuration of a model and the headers of its weights, of a folder or a GGUF file. No torch.

A file that is missing, damaged or cut short raises ModelError.
"""

import json
import re
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from h2o_chat.base.errors import ModelError
from h2o_chat.models import gguf
from h2o_chat.models.gguf_config import config_of, held_as

MOST_LAYERS = 10_000
"""Most layers that a configuration may have; the largest models have 130."""


def read_config(folder: Path) -> dict[str, Any]:
    """The contents of `config.json`, or the equivalent of a GGUF file."""
    if folder.is_file():
        return config_of(gguf.header_of(folder))
    config = read_json(folder / "config.json")
    kind, classes = config.get("model_type") or "", config.get("architectures") or []
    names = [kind, *classes] if isinstance(classes, list) else [None]
    if not all(isinstance(one, str) for one in names):
        raise ModelError(
            f"{folder / 'config.json'} is damaged: model_type or architectures is no name.",
            "Fetch the file again.",
        )
    if not kind:
        raise ModelError(
            f"{folder / 'config.json'} names no model_type, so it is not clear which model this is.",
            "Expected a folder as written by transformers' save_pretrained().",
        )
    _check_layers(config, folder / "config.json")
    return config


def _check_layers(config: dict[str, Any], file: Path) -> None:
    """Checks the number of layers before transformers makes a list of that length."""
    for name, value in config.items():
        if isinstance(value, dict):
            _check_layers(value, file)
        elif (
            isinstance(value, int) and value > MOST_LAYERS and re.search(r"(^|_)(n_?layers?|layers?)$", name)
        ):
            raise ModelError(f"{file} is damaged: {name} is {value:,}.", "Fetch the file again.")


@dataclass(frozen=True)
class StoredWeights:
    """A summary of the headers of the weight files."""

    parameters: int
    dtype: str  # Type of most parameters: F32, F16, BF16 ...; of a GGUF file also Q4_0, Q4_K ...
    bytes: int  # Size on the disk
    held_as: str = ""  # Types of a GGUF file's matrices in the native step (`gguf_config.held_as`)
    held_bytes: int = 0  # Bytes that these take


def check_weights(folder: Path) -> StoredWeights:
    """Reads the headers of all safetensors files, or of a GGUF file."""
    by_dtype, stored, held = Counter[str](), 0, ("", 0)
    if folder.is_file():
        header = gguf.header_of(folder)
        held = held_as(header)
        for one in header.tensors.values():
            by_dtype[one.kind_name] += prod(one.shape)
            stored += one.bytes
    for path in [] if folder.is_file() else weight_files(folder):
        for tensor in header_of(path).values():
            by_dtype[tensor["dtype"]] += prod(tensor["shape"])
            stored += tensor["data_offsets"][1] - tensor["data_offsets"][0]
    if not by_dtype:
        raise ModelError(f"The weight files in {folder} hold no tensors.", "Fetch them again.")
    return StoredWeights(by_dtype.total(), by_dtype.most_common(1)[0][0], stored, *held)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder."""
    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    if not index.is_file():
        raise no_safetensors(folder, sorted(path.name for path in folder.iterdir()))
    paths = [folder / shard for shard in shards_of(index)]
    if missing := [path.name for path in paths if not path.is_file()]:
        raise ModelError(
            f"{folder} lacks {len(missing)} of {len(paths)} weight files: {', '.join(missing[:3])}.",
            "The download is not complete: fetch the missing files.",
        )
    return paths


def no_safetensors(where: object, names: Iterable[str]) -> ModelError:
    """The error for a folder or a repository without weights that can be read; `names` are its files."""
    pickled = [name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]
    found = f" ({pickled[0]} is pickle, which can run code and is not read)" if pickled else ""
    return ModelError(
        f"{where} has no safetensors weights{found}.",
        "Expected model.safetensors, or model.safetensors.index.json and its shards; a copy may have them.",
    )


def shards_of(index: Path) -> list[str]:
    """The weight files that an index names."""
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise ModelError(f"{index} has no weight_map.", "Fetch it again.")
    for name in shards.values():
        named = isinstance(name, str) and 0 < len(name) < 200 and "\0" not in name
        if not named or Path(name).is_absolute() or ".." in Path(name).parts:
            raise ModelError(
                f"{index} names {str(name)[:60]!r}, which is no file beside it.", "Fetch it again."
            )
    return sorted(set(shards.values()))


def read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}.", "Fetch the file again.") from error
    if not isinstance(data, dict):
        raise ModelError(f"{path} does not hold a JSON object.", "Fetch the file again.")
    return data


def read_range(path: Path, start: int, count: int) -> bytearray:
    """Bytes [start, start + count) of a file. Raises ModelError if the file is shorter."""
    raw = bytearray(count)
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        view = memoryview(raw)
        while view:
            got = file.readinto(view)
            if not got:
                raise ModelError(f"{path} was cut short while it was read.", "Fetch it again.")
            view = view[got:]
    return raw


def header_of(path: Path) -> dict[str, Any]:
    """The tensors of a safetensors file: `{name: {dtype, shape, data_offsets}}`, counted from its beginning.

    The library safetensors checks all of it: types, sizes, tensors that overlap or leave holes, the length of
    the file. It does not tell where the data of a tensor lies, which is read here. Raises ModelError if the
    file is damaged.
    """
    try:
        with safe_open(path, framework="numpy"):
            pass
    except (SafetensorError, ValueError) as error:
        what = str(error).removeprefix("Error while deserializing header: ")
        hint = "Fetch the file again (a Git LFS pointer looks like this too)."
        raise ModelError(f"{path} is damaged: {what}.", hint) from error
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header: dict[str, Any] = json.loads(file.read(length))
    header.pop("__metadata__", None)
    for tensor in header.values():
        tensor["data_offsets"] = [8 + length + offset for offset in tensor["data_offsets"]]
    return header
