"""Sizes of a model: what memory is counted by. No torch."""

from dataclasses import dataclass
from typing import Any

from h2o_chat.base.errors import ModelError


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model, however it is computed."""

    layers: int
    hidden: int
    heads: int
    """Query heads of a layer."""
    kv_heads: int
    head_size: int
    vocabulary: int
    """Tokens that it knows: rows of its embedding."""
    tied: bool
    """The head is the embedding."""


def sizes_of(config: Any) -> Sizes:
    """The sizes that a configuration of transformers says.

    Raises:
        ModelError: it says that there are no heads.
    """
    config = config.get_text_config()
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    if not heads or not kv_heads:
        raise ModelError(
            "The configuration says that there are 0 attention heads: 1 or more are needed.",
            "Fetch it again.",
        )
    return Sizes(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=heads,
        kv_heads=kv_heads,
        head_size=getattr(config, "head_dim", None) or config.hidden_size // heads,
        vocabulary=config.vocab_size,
        tied=config.tie_word_embeddings,
    )
