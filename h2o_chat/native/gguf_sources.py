"""The tensors of a GGUF file, rounded a block of rows at a time, as `Sources` does with those of safetensors.

Q4_0 is 16 steps and a scale for 32 columns, and so is int4 here; Q8_0 is int8: they are packed without being
rounded again, Q4_0 in 8 bits too. What has other blocks is turned into numbers and rounded as a folder's are.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from h2o_chat.models.gguf import damaged
from h2o_chat.models.gguf_tensors import GgufTensors
from h2o_chat.native.layout import GROUP, padded
from h2o_chat.native.rounding import rounded

_EXACT = {"Q4_0": (4, 8), "Q8_0": (8,)}
"""Of a type: the bits in which its blocks are held as they are."""


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
        if bits not in _EXACT.get(stored.kind_name, ()):
            numbers = self.rows(name, shape, first, end)
            return rounded(pad(numbers, (0, padded(shape[1], GROUP) - shape[1])), bits)
        raw = self.stored_rows(name, first, end)
        blocks = raw.view(len(raw), shape[1] // GROUP, -1)
        scales = blocks[:, :, :2].contiguous().view(torch.float16).flatten(1)
        if not scales.isfinite().all():
            raise damaged(self.path, f"{name} holds NaN or infinity")
        stored_q = blocks[:, :, 2:]
        if stored.kind_name == "Q8_0":
            return stored_q.contiguous().view(torch.int8).flatten(1), scales
        return torch.cat((stored_q & 15, stored_q >> 4), 2).view(torch.int8).sub(8).flatten(1), scales
