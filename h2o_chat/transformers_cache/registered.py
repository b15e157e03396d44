"""Importing this tells transformers of `h2o_attention`: its models then take attn_implementation="h2o".

It imports what all models of transformers are made of, a second of CPU: the native step does without it.
"""

from typing import Any

from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from h2o_chat.transformers_cache.attention_function import h2o_attention

NAME = "h2o"


def _padding_mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> Tensor | None:
    """Hands the 2-D padding mask through: causality is decided by stored positions, not by columns."""
    return attention_mask


AttentionInterface.register(NAME, h2o_attention)
AttentionMaskInterface.register(NAME, _padding_mask)
