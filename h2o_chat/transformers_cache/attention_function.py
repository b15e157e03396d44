"""The attention function of all models, which `registered.py` registers with transformers.

Shapes: R rows, H KV heads, G query heads per KV head, N new tokens, D head size.
"""

from typing import Any

import torch
from torch import Tensor

from h2o_chat.base.errors import ModelError, UsageError
from h2o_chat.cache.attention import LayerStep
from h2o_chat.transformers_cache.layer import Handoff, expected_latent
from h2o_chat.transformers_cache.layout import require_plain
from h2o_chat.transformers_cache.ready import begin

# Keywords of transformers' models that do not change attention.
_HARMLESS = {
    "position_ids",
    "use_cache",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "is_causal",
    "cache_position",
    "position_embeddings",
    "logits_to_keep",
    "output_router_logits",
}


def h2o_attention(
    module: Any,
    query: Tensor,
    key: Any,
    value: Any,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention through an `H2OCache`, as transformers calls it.

    Args:
        query: [R, H * G, N, D].
        key, value: the `Handoff` that `H2OLayer.update` returned.
        attention_mask: [R, 1, 1, all columns so far], False for padding, or None.
        scaling: of the logits; None for D ** -0.5.
        sliding_window: tokens that a query of this layer sees, itself included; None: all before it.
        softcap: bound of the logits, `softcap * tanh(logits / softcap)` (Gemma 2, arXiv 2408.00118).
        s_aux: [H * G] learned logits of a token without a value, one of each query head (gpt-oss).

    Returns:
        The output [R, N, H * G, D]; attention weights are not returned.

    Raises:
        ModelError: a keyword that changes attention and is not handled here, or a mask of another shape.
        UsageError: no H2OCache was given, or one that was made without a model that it has to know.
    """
    strange = {k: v for k, v in others.items() if k not in _HARMLESS and v is not None}
    if dropout:
        strange["dropout"] = dropout
    if strange:
        raise ModelError(
            f"{type(module).__name__} passes attention keywords that h2o does not handle: {strange}.",
            "This family is not supported yet.",
        )
    if not isinstance(key, Handoff) and (latent := expected_latent()) is not None:
        key = Handoff(latent, key, value)
    if not isinstance(key, Handoff):
        raise UsageError(
            'attn_implementation="h2o" was run without an H2OCache; any other cache would grow silently.',
            "Pass past_key_values=H2OCache(budget=...).",
        )
    if key.layer.cache.trained is None and key.layer.arena is None:
        require_plain(module.config)
    mask = attention_mask
    if mask is not None:
        if mask.ndim != 4 or mask.dtype != torch.bool or mask.shape[1:3] != (1, 1):
            shape = tuple(mask.shape)
            raise ModelError(f"h2o needs a padding mask [rows, columns], this one has the shape {shape}.")
        mask = mask[:, 0, 0, -key.keys.shape[2] :]
    return through_slots(query, key, mask, scaling, sliding_window, softcap, s_aux), None


def through_slots(
    query: Tensor,
    new: Handoff,
    mask: Tensor | None = None,
    scaling: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
    sink: Tensor | None = None,
) -> Tensor:
    """Attention of one layer, which also updates its cache. [R, H * G, N, D] -> [R, N, H * G, D]

    Args:
        mask: [R, N] bool, False for padding.
        window: `sliding_window` of `h2o_attention`, `sink` its `s_aux`; see there for the others.
    """
    layer, keys, values = new.layer, new.keys, new.values
    rows, heads, tokens, size = keys.shape
    # A layer that shares slots may be fed only a prompt's last tokens (Gemma 4): those before are made up.
    missing = tokens - query.shape[2]
    if missing:
        query = torch.nn.functional.pad(query, (0, 0, missing, 0))
    queries = query.reshape(rows, heads, -1, tokens, query.shape[-1])  # [R, H, G, N, D]
    if new.attended:
        step, arena = layer.cache.step, layer.arena
        assert step is not None
        assert arena is not None
    else:
        step, arena = begin(layer.cache, layer, keys, values, queries.shape[2], mask)
        arena.windows[layer.at] = layer.kind.window or window
    scaling = size**-0.5 if scaling is None else scaling
    here = LayerStep(arena, layer.at, scaling, softcap, None if sink is None else sink.view(heads, -1, 1, 1))
    if tokens == 1:
        output = here.decode(step, queries, keys, values, reuses_slots=new.attended)
    else:
        output = here.prefill(step, queries, keys, values, reuses_slots=new.attended, counts=not missing)
    layer.fed += 0 if new.attended else tokens
    new.attended = True
    return output[..., missing:, :].flatten(1, 2).transpose(1, 2).contiguous()
