"""What an answer rests on, in numbers: what each query head counts, and what came of it. No torch.

Attention summed over all heads finds sinks and neighbours. Each query head has a weight, learned from answers
with a message left out (AT2, arXiv 2504.13752).

Shapes: L layers, H KV heads, G query heads per KV head.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from h2o_chat.base.errors import ModelError
from h2o_chat.models.sizes import Sizes

FILE = "h2o-source.json"
"""In the folder of a model: its weights, as `tools/train_source.py` writes them."""
MOST_BYTES = 4 << 20
"""Of that file: 100,000 query heads."""
LARGEST = 1_000_000
"""Weight, of either sign: those of pocket are below 2, and sums of fp32 must stay finite."""
NAMED = 64
"""Tokens whose text is told."""
LEAST = 1.0
"""An answer rests on a message whose heaviest tokens have more than this, all together."""


@dataclass(frozen=True)
class Weights:
    """What `FILE` holds."""

    heads: list[list[float]]
    """[L][H * G] what a query head's attention counts."""


@dataclass(frozen=True)
class Rested:
    """What the tokens before an answer gave to it."""

    positions: list[int]
    """Of all that were held when it began, in order."""
    weights: list[float]
    """Of each: attention of all query heads by their weights, per token of the answer."""
    texts: dict[int, str]
    """Of the heaviest, at most `NAMED`; empty of one that is gone."""


def read_weights(folder: Path) -> Weights | None:
    """The weights in a model's folder; None where it has none.

    Raises:
        ModelError: they cannot be read, or are none.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise ValueError(f"{size:,} bytes are more than {MOST_BYTES:,}")
        data = json.loads(path.read_bytes())
        weights = Weights([[float(x) for x in layer] for layer in data["heads"]])
        if not all(abs(x) <= LARGEST for layer in weights.heads for x in layer):
            raise ValueError(f"a weight is no number, or larger than {LARGEST:,}")
        return weights
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ModelError(
            f"{path} holds no weights of query heads: {type(error).__name__}: {str(error)[:100]}.",
            "tools/train_source.py makes it; without the file nothing is said of what an answer rests on.",
        ) from error


def fits(weights: Weights, sizes: Sizes) -> None:
    """
    Raises:
        ModelError: they are of another model.
    """
    shape = len(weights.heads), {len(layer) for layer in weights.heads}
    if shape != (sizes.layers, {sizes.heads}):
        raise ModelError(
            f"{FILE} has weights of {shape[0]} layers of {sorted(shape[1])} query heads, the model has"
            f" {sizes.layers} of {sizes.heads}.",
            "Make it anew with tools/train_source.py, or remove it.",
        )
