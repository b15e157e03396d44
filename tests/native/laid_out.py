"""Weights in tiles as numbers, read as `src/weights.h` says, by no code of the library."""

import ctypes

import torch
from torch import Tensor

from h2o_chat.native.gguf_weights import GgufWeights
from h2o_chat.native.layout import LEVELS_BYTES, SCALES_BYTES, Matrix, MatrixAddress, Vector
from h2o_chat.native.packed import Packed

Q6_K = 14
MINIMUM = (3, 7, 12, 13)
BLOCKS = (12, 13, 14)


def bytes_at(address: int, count: int) -> Tensor:
    return torch.frombuffer(bytearray(ctypes.string_at(address, count)), dtype=torch.uint8)


def levels_of(m: MatrixAddress) -> Tensor:
    """Levels without sign, [rows, G, 32] int32."""
    tiles, groups, size = m.rows // 16, m.columns // 32, LEVELS_BYTES[m.kind]
    stored = bytes_at(m.weights, tiles * groups * size).view(tiles, groups, size // 64, 16, 4).int()
    low = stored[:, :, :4]
    quads = stored if size == 512 else torch.cat((low & 15, low >> 4), 2)  # [T, G, 8, 16, 4]
    for j in range(8):
        if size == 320:
            quads[:, :, j] |= (stored[:, :, 4] >> j & 1) << 4
        if size == 384:
            quads[:, :, j] |= (stored[:, :, 4 + j // 4] >> 2 * (j % 4) & 3) << 4
    return quads.permute(0, 3, 1, 2, 4).reshape(m.rows, groups, 32)


def scales_of(m: MatrixAddress) -> tuple[Tensor, Tensor]:
    """Scales of the first and the last 16 columns of groups [rows, G, 2], and minima [rows, G], in fp32."""
    tiles, groups, size = m.rows // 16, m.columns // 32, SCALES_BYTES[m.kind]
    stored = bytes_at(m.scales, tiles * groups * size)
    if m.kind not in BLOCKS:
        halves = stored.view(torch.float16).view(tiles, groups, -1, 16).float()
        scales, minima = halves[:, :, 0], halves[:, :, -1] * (m.kind in MINIMUM)
        both = torch.stack((scales, scales), -1)  # [T, G, 16, 2]
    else:
        blocks, units = stored.view(tiles, groups // 8, 8 * size), 1 if m.kind == Q6_K else 2
        unit = (
            blocks[:, :, : 32 * units].contiguous().view(torch.float16).view(tiles, -1, units, 1, 16).float()
        )
        own = blocks[:, :, 32 * units :].reshape(tiles, -1, 8, 2, 16).float()
        if m.kind == Q6_K:
            both = (unit * (own.transpose(2, 3) - 128)).permute(0, 1, 3, 4, 2).reshape(tiles, groups, 16, 2)
            minima = torch.zeros(tiles, groups, 16)
        else:
            scales = (unit[:, :, 0] * own[:, :, :, 0]).reshape(tiles, groups, 16)
            minima = (unit[:, :, 1] * own[:, :, :, 1]).reshape(tiles, groups, 16)
            both = torch.stack((scales, scales), -1)
    return both.transpose(1, 2).reshape(m.rows, groups, 2), minima.transpose(1, 2).reshape(m.rows, groups)


def zero_level(m: MatrixAddress) -> int:
    return 0 if m.kind in MINIMUM else {256: 8, 320: 16, 384: 32, 512: 128}[LEVELS_BYTES[m.kind]]


def numbers_of(m: MatrixAddress) -> Tensor:
    """[rows, columns] fp32"""
    q = (levels_of(m) - zero_level(m)).view(m.rows, -1, 2, 16).float()
    scales, minima = scales_of(m)
    return (q * scales.unsqueeze(-1) - minima[:, :, None, None]).view(m.rows, m.columns)


def weight(packed: Packed, part: Matrix | Vector) -> Tensor:
    """[rows, columns] of a matrix, [numbers] of a vector, fp32"""
    if isinstance(part, Matrix):
        return matrix(packed, part)
    return bytes_at(packed.vector(part.name), 4 * part.numbers).view(torch.float32)


def matrix(weights: Packed | GgufWeights, part: Matrix) -> Tensor:
    """All rows of a matrix's sources, one below the other, without padding."""
    found = weights.matrices(part.name)
    numbers = torch.cat([numbers_of(one) for one in found])[:, : part.columns]
    if part.alternate and len(found) == 1:
        turns = numbers.view(-1, len(part.sources), 16, part.columns)
        numbers = turns.transpose(0, 1).reshape(-1, part.columns)
    sizes = [-(-source.rows // 16) * 16 for source in part.sources]
    if not part.alternate and len(found) == 1:  # rows of q, k and v come in whole tiles
        return numbers[: sum(source.rows for source in part.sources)]
    return torch.cat(
        [one[: source.rows] for one, source in zip(numbers.split(sizes), part.sources, strict=True)]
    )
