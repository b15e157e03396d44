"""Reads files of weights: a range of bytes, and the checked header of a safetensors file."""

import json
import struct
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from h2o_chat.base.errors import ModelError


def read_range(path: Path, start: int, count: int) -> bytearray:
    """Bytes [start, start + count) of a file.

    Raises:
        ModelError: the file is shorter.
    """
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
    """The tensors of one safetensors file: `{name: {dtype, shape, data_offsets}}`.

    The library safetensors checks all of it: types, sizes, tensors that overlap or leave holes, the length of
    the file. It does not tell where the data of a tensor lies, which is read here.

    Raises:
        ModelError: the file is damaged.
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
    return header
