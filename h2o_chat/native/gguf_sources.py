"""The tensors of a GGUF file, rounded a block of rows at a time, as `Sources` does with those of safetensors.

Some types are whole numbers times one fp16 scale for 32 columns, and so are int4 and int8 here: these are
packed without being rounded again. Other blocks are turned into numbers and rounded like a folder's weights.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from h2o_chat.models.gguf_tensors import GgufTensors
from h2o_chat.native.layout import GROUP, padded
from h2o_chat.native.rounding import rounded

_EXACT = {"Q4_0": (4, 8), "Q5_0": (8,), "Q8_0": (8,), "IQ4_NL": (8,)}
"""Of such a type: the bits that hold its numbers as they are. Its blocks begin with their scale."""


class GgufSources(GgufTensors):
    """The same tensors, in 4 or 8 bits."""

    def rounded(
        self, name: str, shape: tuple[int, int], first: int, end: int, bits: int
    ) -> tuple[Tensor, Tensor]:
        """Rows [first, end): q [R, C] int8 and scales [R, G] fp16, the file's own where they fit.

        Raises:
            ModelError: it has another shape, or holds NaN or infinity, or its type is not known.
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
