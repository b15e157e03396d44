"""Figures that several tasks of the lab need: means with their intervals."""

from collections.abc import Sequence

import torch

DRAWS = 2000
CONFIDENCE = 0.95


def mean_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The 95% interval of a mean, by resampling the values (Efron 1979)."""
    generator = torch.Generator().manual_seed(seed)
    given = torch.tensor(values, dtype=torch.float64)
    draws = torch.randint(len(given), (DRAWS, len(given)), generator=generator)
    ends = torch.tensor([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).double()
    low, high = given[draws].mean(1).quantile(ends).tolist()
    return low, high
