"""Kinds of weights by ggml's numbers, and the bytes that they take in tiles (`src/weights.h`). No torch."""

from dataclasses import dataclass

F32, F16, BF16 = 0, 1, 30
Q4_0, Q5_0, Q8_0, MXFP4 = 2, 6, 8, 39

LEVELS_BYTES = {2: 256, 3: 256, 6: 320, 7: 320, 8: 512, 12: 256, 13: 320, 14: 384}
"""Bytes of a group of 16 rows and 32 columns by kind: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K."""
SCALES_BYTES = {2: 32, 3: 64, 6: 32, 7: 64, 8: 32, 12: 40, 13: 40, 14: 36}
"""Bytes of its scales and minima."""


def in_tiles(kind: int) -> int:
    """The kind as which a tensor of a GGUF file is laid out: its own, 5 bits for MXFP4, or 8 bits."""
    return Q5_0 if kind == MXFP4 else kind if kind in LEVELS_BYTES else Q8_0


@dataclass(frozen=True)
class MatrixAddress:
    """The place of a matrix in memory, in tiles."""

    weights: int
    """Address of its levels."""
    scales: int
    """Address of its scales."""
    rows: int
    """Padded to a multiple of 16."""
    columns: int
    """Padded to a multiple of 32."""
    kind: int

    @property
    def bytes(self) -> int:
        groups = self.rows * self.columns // (16 * 32)
        return groups * (LEVELS_BYTES[self.kind] + SCALES_BYTES[self.kind])
