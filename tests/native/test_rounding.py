"""Rounding to 4 and 8 bits. How it is laid out: `test_packing.py`."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from h2o_chat.native.rounding import rounded


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
