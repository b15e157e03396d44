"""Reads tensors of a GGUF file by their names in transformers, some rows at a time.

A file that is damaged or of another architecture, and a tensor of another shape, of an unknown type, or with
NaN or infinity raise ModelError. No torch: weights are laid out while it is imported.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from h2o_chat.base.errors import ModelError
from h2o_chat.models.gguf import Stored, damaged, header_of
from h2o_chat.models.gguf_config import config_of, names_of, turned_heads
from h2o_chat.models.model_files import read_range

_EXPERT = re.compile(r"(?<=\.experts)\.(\d+)(?=\.)")

Numbers = NDArray[numpy.float32]


class GgufTensors:
    """The tensors of a file of one of `gguf_config.FAMILIES`."""

    def __init__(self, file: Path) -> None:
        self._header = header_of(file)
        self._config = config_of(self._header)
        self._names = names_of(self._config)

    def rows(self, name: str, shape: tuple[int, ...], first: int, end: int) -> Numbers:
        """Rows [first, end) of a tensor of this shape, whole heads where it turns some, in fp32."""
        stored = self.find(name, shape)
        raw = self.raw_rows(name, first, end)
        numbers = numbers_of(name, stored, numpy.frombuffer(raw, numpy.uint8).reshape(end - first, -1))
        if size := self.turned_rows(name):
            numbers = unpaired(numbers, len(numbers) // size)
        return numbers.reshape(end - first, *shape[1:])

    def raw_rows(self, name: str, first: int, end: int) -> bytearray:
        """Rows [first, end) as the file has them, in its order."""
        stored, _ = self._stored(name)
        row_bytes = stored.bytes // stored.shape[0]
        return read_range(stored.file, stored.start + first * row_bytes, (end - first) * row_bytes)

    def turned_rows(self, name: str) -> int:
        """Rows of a head that the file stores in pairs, (0, half), (1, half + 1) ...; 0: as they come."""
        heads = turned_heads(self._config, name)
        return self._stored(name)[0].shape[0] // heads if heads else 0

    def find(self, name: str, shape: tuple[int, ...]) -> Stored:
        """Type and place of a tensor of this shape."""
        stored, known = self._stored(name)
        if known != shape:
            raise damaged(stored.file, f"{name} has the shape {list(known)}, and {list(shape)} is needed")
        return stored

    def _stored(self, name: str) -> tuple[Stored, tuple[int, ...]]:
        """Type and place of a tensor, or of one expert's part of it; its shape in transformers."""
        there, shape = self._names[_EXPERT.sub("", name)]
        stored = self._header.tensors[there]
        if (expert := _EXPERT.search(name)) is None:
            return stored, shape
        size = stored.bytes // shape[0]
        start = stored.start + int(expert[1]) * size
        return replace(stored, shape=shape[1:], start=start, bytes=size), shape[1:]


def unpaired(stored: Any, heads: int) -> Any:
    """Rows [heads x size, ...] (numpy's or torch's), which the file stores in pairs of each head, in
    transformers' order."""
    return stored.reshape(heads, -1, 2, *stored.shape[1:]).swapaxes(1, 2).reshape(stored.shape)


def numbers_of(name: str, stored: Stored, raw: NDArray[numpy.uint8]) -> Numbers:
    """The numbers of raw rows [rows, bytes of a row], in fp32."""
    import gguf  # not before a model needs it

    try:
        with numpy.errstate(all="ignore"):  # NaN and infinity are found below
            found = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(stored.kind))
    except NotImplementedError as error:
        raise ModelError(
            f"{name} in {stored.file} is {stored.kind_name}, which the package gguf does not read.",
            "A file in Q4_0, Q8_0, Q4_K, Q6_K or F16 can be read.",
        ) from error
    numbers: Numbers = found.astype(numpy.float32, copy=False)
    if not numpy.isfinite(numbers).all():
        raise damaged(stored.file, f"{name} holds NaN or infinity")
    return numbers
