"""Reads a model's weights from safetensors files and rounds them, a block of rows at a time.

Files are not mapped: mapped pages would count as memory of this process.
"""

import math
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from h2o_chat.base.errors import ModelError
from h2o_chat.models.model_files import header_of, read_range, weight_files
from h2o_chat.native.layout import GROUP, padded
from h2o_chat.native.rounding import rounded

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Sources:
    """The tensors of a folder of safetensors.

    Raises:
        ModelError: weight files are missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tensors: dict[str, tuple[Path, int, dict[str, Any]]] = {}
        for file in weight_files(folder):
            header = header_of(file)
            with file.open("rb") as opened:
                start = 8 + struct.unpack("<Q", opened.read(8))[0]
            self._tensors |= {name: (file, start, about) for name, about in header.items()}

    def rows(self, name: str, shape: tuple[int, ...], first: int, end: int) -> Tensor:
        """Rows [first, end) of a tensor of this shape, in fp32.

        Raises:
            ModelError: the tensor is missing, has another shape or type, or contains NaN or infinity.
        """
        file, start, dtype = self._find(name, shape)
        row_bytes = math.prod(shape[1:]) * dtype.itemsize
        raw = read_range(file, start + first * row_bytes, (end - first) * row_bytes)
        numbers = torch.frombuffer(raw, dtype=dtype).view(end - first, *shape[1:]).float()
        if not numbers.isfinite().all():
            raise ModelError(f"{name} in {file} holds NaN or infinity.", "Fetch the file again.")
        return numbers

    def rounded(
        self, name: str, shape: tuple[int, int], first: int, end: int, bits: int
    ) -> tuple[Tensor, Tensor]:
        """Rows [first, end) in 4 or 8 bits, padded to whole groups: q [R, C] int8 and scales [R, G] fp16."""
        numbers = self.rows(name, shape, first, end)
        return rounded(pad(numbers, (0, padded(shape[1], GROUP) - shape[1])), bits)

    def _find(self, name: str, shape: tuple[int, ...]) -> tuple[Path, int, torch.dtype]:
        """A tensor's file, the offset of its data there in bytes, and its type.

        Models saved without their output layer have names without `model.`.
        """
        known = next((one for one in (name, name.removeprefix("model.")) if one in self._tensors), None)
        if known is None:
            raise ModelError(f"{self._folder} lacks the weights {name}.", "Fetch a complete model.")
        file, start, about = self._tensors[known]
        if tuple(about["shape"]) != shape:
            raise ModelError(
                f"{known} in {file} has the shape {about['shape']}, config.json says {list(shape)}.",
                "Fetch both files again.",
            )
        first, end = about["data_offsets"]
        dtype = _DTYPES.get(about["dtype"])
        if dtype is None or math.prod(shape) * dtype.itemsize != end - first:
            raise ModelError(
                f"{known} in {file} holds numbers of the type {about['dtype']} in {end - first:,} bytes.",
                f"The native step takes {', '.join(_DTYPES)}: --engine transformers may know it.",
            )
        return file, start + first, dtype
