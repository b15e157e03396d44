"""How the slots of a cache are used: chosen once, or set from one step to the next."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from h2o_chat.config import Prefill
from h2o_chat.policies import Shares


@dataclass
class Plan:
    """What all layers of one cache share."""

    policy: str
    shares: Shares | None
    """None for the `full` policy."""
    chunk: int
    """Prompt tokens that attend before the next eviction, where prefill is chunked."""
    prefill: Prefill
    """full: all tokens of one call attend to each other before any is evicted."""
    observe: bool
    """Keep what `lost` is made of."""
    protect_below: int
    """New tokens at positions below this are protected."""
    bits: int | None = None
    """Of a number in the slots, see `quantized.py`; None: keys and values as the model computes them."""
    dtype: torch.dtype = torch.float32
    """Of keys and values as the model computes them; known once the first have come."""
    pins: frozenset[int] = frozenset()
    """Positions not fed yet that are protected as they are fed."""
    given: bool | None = None
    """Whether what is fed now was said to the model, not by it; None: several tokens at once were."""
    edges: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(default_factory=dict)
    """Angles that layers share within a step, see `H2OLayer.to_the_edge`; emptied before each."""
