"""95% intervals of means, ratios and shares."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

DRAWS = 2000
CONFIDENCE = 0.95


def mean_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """95% interval of a mean, by resampling the values (Efron 1979)."""
    return interval(resampled(torch.tensor(values, dtype=torch.float64), torch.Generator().manual_seed(seed)))


def bootstrap(per_document: Tensor, seed: int) -> tuple[float, float]:
    """95% interval of exp(mean) over documents [N], by resampling them.

    Differences to a reference are taken per document before they come here: the comparison is paired.
    """
    return interval(resampled(per_document, torch.Generator().manual_seed(seed)).exp())


def resampled(values: Tensor, generator: torch.Generator) -> Tensor:
    """The means of DRAWS samples, as many with replacement as there are values [N]. [DRAWS] fp64"""
    draws = torch.randint(len(values), (DRAWS, len(values)), generator=generator)
    return values.double()[draws].mean(1)


def interval(found: Tensor) -> tuple[float, float]:
    """Interval in which 95% of the values [DRAWS] lie."""
    low, high = found.quantile(torch.tensor([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).double()).tolist()
    return low, high


def wilson(right: int, total: int) -> tuple[float, float]:
    """95% interval of a share, by Wilson (1927)."""
    z, share = 1.96, right / total
    middle = share + z * z / (2 * total)
    width = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (middle - width) / scale), min(1.0, (middle + width) / scale)
