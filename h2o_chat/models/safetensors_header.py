"""Reads files of weights: a range of bytes, and the checked header of a safetensors file."""

import json
import re
import struct
from pathlib import Path
from typing import Any

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

    Format: 8 bytes of header length, the header in JSON, the data (github.com/huggingface/safetensors).

    Raises:
        ModelError: it has no such header, tensors overlap, or the size of the file does not match.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else size + 1
        raw = file.read(length) if 8 + length <= size else b""
    try:
        header: dict[str, Any] = json.loads(raw)
        header.pop("__metadata__", None)
        places = sorted((*_place_of(tensor), name) for name, tensor in header.items())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"{path} is damaged: it has no readable safetensors header.",
            "Fetch the file again (a Git LFS pointer looks like this too).",
        ) from error
    end, before = 0, "the header"
    for first, last, name in places:
        if first != end:
            what = "shares bytes with" if first < end else "leaves a hole behind"
            raise ModelError(
                f"{path} is damaged: the tensor {name[:60]!r} {what} {before[:60]!r}.",
                "Fetch the file again.",
            )
        end, before = last, name
    if 8 + length + end != size:
        raise ModelError(
            f"{path} is damaged: {size:,} bytes, its header describes {8 + length + end:,}.",
            "The file is cut short or was changed: fetch it again.",
        )
    return header


def _place_of(tensor: Any) -> tuple[int, int]:
    """(begin, end) of a tensor's data."""
    shape, (start, end) = tensor["shape"], tensor["data_offsets"]
    counts = [*shape, start, end]
    if (
        not all(type(count) is int and 0 <= count < 2**48 for count in counts)
        or len(shape) > 16
        or start > end
    ):
        raise ValueError("no shape, or no place")
    if not re.fullmatch(r"\w{1,20}", tensor["dtype"], re.ASCII):
        raise ValueError("no type")
    return int(start), int(end)
