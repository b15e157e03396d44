"""Importing this registers `h2o_attention`: transformers' models accept attn_implementation="h2o".

It imports the base classes of transformers' models, a second of CPU, which the native step does without.
"""

from typing import Any

from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from h2o_chat.transformers_cache.attention_function import h2o_attention

NAME = "h2o"


def padding_mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> Tensor | None:
    """The padding mask as [R, 1, 1, columns]: causality follows from stored positions, not from columns."""
    return None if attention_mask is None else attention_mask[:, None, None]


AttentionInterface.register(NAME, h2o_attention)
AttentionMaskInterface.register(NAME, padding_mask)
