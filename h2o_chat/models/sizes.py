"""Sizes of a model, from which its memory is computed. No torch."""

from dataclasses import dataclass
from typing import Any

from h2o_chat.base.errors import ModelError


@dataclass(frozen=True)
class Sizes:
    layers: int
    hidden: int
    heads: int
    """Query heads of a layer."""
    kv_heads: int
    head_size: int
    vocabulary: int
    """Number of tokens: rows of its embedding."""
    tied: bool
    """Whether the output layer shares the embedding's weights."""


def sizes_of(config: Any) -> Sizes:
    """The sizes in a configuration of transformers.

    Raises:
        ModelError: it has 0 attention heads.
    """
    whole, config = config, config.get_text_config()
    layers = config.per_layer_config
    heads = max(one.num_attention_heads for one in layers)
    kv_heads = max(getattr(one, "num_key_value_heads", None) or heads for one in layers)
    if not heads or not kv_heads:
        raise ModelError(
            "The configuration says that there are 0 attention heads: 1 or more are needed.",
            "Fetch it again.",
        )
    head_size = max(getattr(one, "head_dim", None) or config.hidden_size // heads for one in layers)
    if nope := getattr(config, "qk_nope_head_dim", None):  # keys and values are made of latents
        kv_heads, head_size = heads, (nope + config.qk_rope_head_dim + config.v_head_dim + 1) // 2
    return Sizes(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        vocabulary=config.vocab_size,
        tied=getattr(config, "tie_word_embeddings", getattr(whole, "tie_word_embeddings", False)),
    )
