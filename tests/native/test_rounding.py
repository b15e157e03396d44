"""Rounding to 4 and 8 bits, and the order of the bytes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from laid_out import levels_of, scales_of, zero_level
from torch import Tensor
from twin import rounded_activations

from h2o_chat.native.layout import Q4_0, Q8_0, MatrixAddress
from h2o_chat.native.rounding import rounded, tiled, tiled_scales


def weights(seed: int, rows: int = 16, columns: int = 96) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator)


def again(q: Tensor, scales: Tensor) -> Tensor:
    return (q.view(len(q), -1, 32) * scales.float().unsqueeze(2)).flatten(1)


@given(st.integers(0, 2**32), st.floats(-3, 3))
def test_8_bits(seed: int, power: float) -> None:
    """No weight is farther off than half a step, and what fp16 adds to the scale of the largest."""
    given_ = weights(seed) * 10**power
    q, scales = rounded(given_, 8)
    assert q.dtype == torch.int8
    assert scales.dtype == torch.float16
    assert int(q.min()) >= -127
    largest = given_.view(16, -1, 32).abs().amax(2)
    allowed = largest / 127 * (0.5 + 127 * 2**-11 + 0.01)
    assert ((again(q, scales) - given_).view(16, -1, 32).abs().amax(2) <= allowed).all()


@given(st.integers(0, 2**32), st.floats(-3, 3))
def test_4_bits_are_nowhere_worse_than_without_a_search(seed: int, power: float) -> None:
    """Than with the scale at which the largest weight is -8, as in Q4_0."""
    given_ = weights(seed) * 10**power
    q, scales = rounded(given_, 4)
    assert int(q.min()) >= -8
    assert int(q.max()) <= 7
    groups = given_.view(16, -1, 32)
    plain = (groups.gather(2, groups.abs().argmax(2, keepdim=True)) / -8).half().float()
    unsearched = (groups / plain).round().clamp(-8, 7) * plain
    error = (again(q, scales) - given_).view(16, -1, 32).square().sum(2)
    assert (error <= (unsearched - groups).square().sum(2) * 1.0001).all()


def test_the_search_is_worth_something() -> None:
    given_ = weights(1, 64, 2048)
    groups = given_.view(64, -1, 32)
    plain = groups.gather(2, groups.abs().argmax(2, keepdim=True)) / -8
    unsearched = ((groups / plain).round().clamp(-8, 7) * plain).flatten(1)
    error = (again(*rounded(given_, 4)) - given_).square().mean()
    assert error < 0.93 * (unsearched - given_).square().mean()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-30, 6e4])
def test_weights_that_are_hardly_there_or_huge(bits: int, size: float) -> None:
    given_ = torch.zeros(16, 32)
    given_[3, 5] = size
    found = again(*rounded(given_, bits))
    assert found.isfinite().all()
    assert abs(float(found[3, 5]) - size) <= max(1e-2 * size, 6e-8 * 127)


def levels(stored: Tensor, kind: int) -> Tensor:
    """The packed matrix as q [48, 96] int8."""
    where = MatrixAddress(stored.data_ptr(), 0, 48, 96, kind)
    return (levels_of(where) - zero_level(where)).view(48, 96).to(torch.int8)


def test_bytes_of_4_bits() -> None:
    q = torch.randint(-8, 8, (48, 96), dtype=torch.int8)
    stored = tiled(q, 4)
    assert stored.shape == (3, 3, 4, 16, 4)
    for t, g, j, r, i in [(0, 0, 0, 0, 0), (1, 2, 3, 15, 3), (2, 1, 2, 7, 1)]:
        low, high = int(q[16 * t + r, 32 * g + 4 * j + i]), int(q[16 * t + r, 32 * g + 16 + 4 * j + i])
        assert int(stored[t, g, j, r, i]) == (low + 8) | (high + 8) << 4
    assert torch.equal(levels(stored, Q4_0), q)


def test_bytes_of_8_bits() -> None:
    q = torch.randint(-127, 128, (48, 96), dtype=torch.int8)
    stored = tiled(q, 8)
    assert stored.shape == (3, 3, 8, 16, 4)
    for t, g, j, r, i in [(0, 0, 0, 0, 0), (1, 2, 7, 15, 3), (2, 1, 5, 7, 1)]:
        assert int(stored[t, g, j, r, i]) == int(q[16 * t + r, 32 * g + 4 * j + i]) + 128
    assert torch.equal(levels(stored, Q8_0), q)


def test_scales_of_tiles() -> None:
    scales = torch.rand(48, 3).half()
    stored = tiled_scales(scales)
    assert stored.shape == (3, 3, 16)
    assert stored[2, 1, 5] == scales[2 * 16 + 5, 1]
    both, _ = scales_of(MatrixAddress(0, stored.data_ptr(), 48, 96, Q8_0))
    assert torch.equal(both[:, :, 0], scales.float())


def test_activations_round_halves_to_even_and_keep_zeros() -> None:
    x = torch.zeros(1, 40)
    x[0, :4] = torch.tensor([127.0, 2.5, 3.5, -0.5])
    x[0, 39] = 1e-3
    found = rounded_activations(x, 4)
    assert found[0, :4].tolist() == [127, 2, 4, 0]
    assert found[0, 32:39].abs().sum() == 0
    assert found[0, 39] == pytest.approx(1e-3)


def test_activations_beside_weights_of_8_bits_have_15() -> None:
    x = weights(2)
    off = (rounded_activations(x, 8) - x).abs().view(16, -1, 32).amax(2)
    largest = x.abs().view(16, -1, 32).amax(2)
    assert (off <= largest / 127 / 256 * 1.01).all()
    assert (off > largest / 127 / 256 / 16).any()
