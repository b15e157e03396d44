"""95% intervals of means, ratios and shares."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

DRAWS = 2000


def mean_interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """95% interval of a mean, by resampling the values (Efron 1979)."""
    return interval(samples(torch.tensor(values, dtype=torch.float64), seed).mean(1))


def share_interval(values: Sequence[float], whole: Sequence[float], seed: int) -> tuple[float, float]:
    """95% interval of the mean as a share of another mean of the same items, by resampling the items."""
    draws = (samples(torch.tensor(one, dtype=torch.float64), seed).mean(1) for one in (values, whole))
    return interval(torch.divide(*draws).nan_to_num())


def bootstrap(per_document: Tensor, seed: int) -> tuple[float, float]:
    """95% interval of exp(mean) over documents [N], by resampling them.

    Differences to a reference are taken per document before they come here: the comparison is paired.
    """
    return interval(samples(per_document, seed).mean(1).exp())


def samples(values: Tensor, seed: int) -> Tensor:
    """Draws DRAWS samples with replacement, each as large as the values [N]. [DRAWS, N] fp64"""
    generator = torch.Generator().manual_seed(seed)
    return values.double()[torch.randint(len(values), (DRAWS, len(values)), generator=generator)]


def interval(found: Tensor) -> tuple[float, float]:
    """Interval in which 95% of the values [DRAWS] lie."""
    low, high = found.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return low, high


def wilson(right: int, total: int) -> tuple[float, float]:
    """95% interval of a share, by Wilson (1927)."""
    z, share = 1.96, right / total
    middle = share + z * z / (2 * total)
    width = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (middle - width) / scale), min(1.0, (middle + width) / scale)
