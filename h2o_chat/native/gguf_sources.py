"""Reads and rounds tensors of a GGUF file, a block of rows at a time, like `Sources` those of safetensors.

Types with whole numbers and one fp16 scale for 32 columns are copied exactly, since int4 and int8 have that
form. Other types are dequantised and rounded like a folder's weights.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from h2o_chat.models.gguf_tensors import GgufTensors
from h2o_chat.native.layout import GROUP, padded
from h2o_chat.native.rounding import rounded

_EXACT = {"Q4_0": (4, 8), "Q5_0": (8,), "Q8_0": (8,), "IQ4_NL": (8,)}
"""Bits that represent each type exactly; its blocks begin with their scale."""


class GgufSources(GgufTensors):
    """Tensors of a GGUF file in 4 or 8 bits."""

    def rounded(
        self, name: str, shape: tuple[int, int], first: int, end: int, bits: int
    ) -> tuple[Tensor, Tensor]:
        """Rows [first, end): q [R, C] int8 and scales [R, G] fp16, exact for the types of `_EXACT`.

        Raises:
            ModelError: the tensor has another shape, contains NaN or infinity, or its type is unknown.
        """
        stored = self.find(name, shape)
        numbers = self.rows(name, shape, first, end)
        if bits not in _EXACT.get(stored.kind_name, ()):
            return rounded(pad(numbers, (0, padded(shape[1], GROUP) - shape[1])), bits)
        blocks = self.stored_rows(name, first, end).view(end - first, shape[1] // GROUP, -1)
        scales = blocks[:, :, :2].contiguous().view(torch.float16).flatten(1)
        each = scales.float().unsqueeze(2)
        groups = numbers.view(*scales.shape, GROUP)
        return torch.where(each == 0, 0, groups / each).round_().to(torch.int8).flatten(1), scales
