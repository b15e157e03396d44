"""The one function registered with transformers: mask by position, attend, tell the cache.

Shapes: R rows, H KV heads, G query heads per KV head, N new tokens, B of them in a
block, S slots, D head size.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from h2o_chat.errors import ModelError, UsageError
from h2o_chat.handoff import Handoff
from h2o_chat.scores import gained, together
from h2o_chat.slots import REMEMBER, H2OLayer

NAME = "h2o"

BLOCK = 256
"""Queries of one pass that attend at once."""

# Passed along by transformers' models without changing what attention computes.
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
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention through an `H2OCache`, as transformers calls it.

    Args:
        query: [R, H * G, N, D].
        key, value: the `Handoff` that `H2OLayer.update` returned.
        attention_mask: [R, all columns so far], 0 for padding, or None.
        scaling: of the logits; None for D ** -0.5.
        sliding_window: tokens that a query of this layer sees, itself included; None: all before it.
        softcap: bound of the logits, `softcap * tanh(logits / softcap)` (Gemma 2, arXiv 2408.00118).

    Returns:
        The output [R, N, H * G, D]; attention weights are not returned.

    Raises:
        ModelError: a keyword that changes attention and is not handled here, or a mask of another shape.
        UsageError: no H2OCache was given.
    """
    strange = {k: v for k, v in others.items() if k not in _HARMLESS and v is not None}
    if dropout:
        strange["dropout"] = dropout
    if strange:
        raise ModelError(
            f"{type(module).__name__} passes attention keywords that h2o does not handle: {strange}.",
            "This family is not supported yet.",
        )
    if not isinstance(key, Handoff):
        raise UsageError(
            'attn_implementation="h2o" was run without an H2OCache; any other cache would grow silently.',
            "Pass past_key_values=H2OCache(budget=...).",
        )
    layer, keys, values = key.layer, key.keys, key.values
    rows, heads, tokens, size = keys.shape
    queries = query.view(rows, heads, -1, tokens, query.shape[-1])  # [R, H, G, N, D]
    real = None if attention_mask is None else _columns(attention_mask, tokens)
    how = _Logits(size**-0.5 if scaling is None else scaling, softcap, sliding_window)
    layer.reserve(tokens)
    layer.tell_apart(queries.shape[2])
    if tokens == 1:
        output = _decode(layer, queries, keys, values, real, how)
    else:
        output = _prefill(layer, queries, keys, values, real, how)
    return output.flatten(1, 2).transpose(1, 2).contiguous(), None  # [R, N, H * G, D]


@dataclass(frozen=True)
class _Logits:
    """How this layer makes and masks its logits."""

    scaling: float
    softcap: float | None
    sliding_window: int | None

    def __call__(self, queries: Tensor, keys: Tensor) -> Tensor:
        """[R, H, G, N, D], [R, H, S, D] -> [R, H, G, N, S] in fp32 (fp64 for fp64)."""
        overflows = queries.dtype == torch.float16  # up to 65,504: scaled before the product, not after it
        if overflows:
            queries = queries * self.scaling
        logits = queries.flatten(2, 3) @ keys.transpose(-1, -2)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if not overflows:
            logits = logits * self.scaling
        if self.softcap is not None:
            logits = self.softcap * torch.tanh(logits / self.softcap)
        return logits.view(*queries.shape[:-1], -1)

    def visible(self, at: Tensor, queries: Tensor) -> Tensor:
        """Which positions [R, H, S] each query [R, N] may attend to: [R, H, 1, N, S], in any slot order."""
        at, queries = at[:, :, None, None], queries[:, None, None, :, None]
        visible = (at >= 0) & (at <= queries)
        if self.sliding_window is not None:
            visible &= at > queries - self.sliding_window
        return visible


def _columns(mask: Tensor, tokens: int) -> Tensor:
    """The padding mask of the new tokens. [R, all columns so far] -> [R, N] bool"""
    if mask.ndim != 2:
        raise ModelError(
            f"h2o needs a padding mask [rows, columns], this one has the shape {tuple(mask.shape)}."
        )
    return mask[:, -tokens:].bool()


def _slot_logits(layer: H2OLayer, held: Tensor, queries: Tensor, at: Tensor, how: _Logits) -> Tensor:
    """Logits of the slots' keys `held`, [R, H, G, N, S], masked; `at` [R, N]: the queries' true positions."""
    if layer.any_far:
        both = torch.cat((queries, layer.to_the_edge(queries, at)), 2)
        near, far = how(both, held).chunk(2, 2)
        logits = torch.where(layer.far[:, :, None, None], far, near)
    else:
        logits = how(queries, held)
    return logits.masked_fill(~how.visible(layer.positions, at), -torch.inf)


def _softmax(logits: Tensor, real: Tensor | None) -> Tensor:
    """Of logits [R, H, G, N, S]; padding queries, which may see nothing at all, get 0 instead of NaN.

    Args:
        real: [R, N] bool, False for padding; None if all are real.
    """
    probabilities = logits.softmax(-1)
    return probabilities if real is None else probabilities.masked_fill(~real[:, None, None, :, None], 0)


def _decode(
    layer: H2OLayer, queries: Tensor, keys: Tensor, values: Tensor, real: Tensor | None, how: _Logits
) -> Tensor:
    """One token per row: into the free slot, attend to all slots, give one up. -> [R, H, G, 1, D]"""
    layer.insert(keys, values, real)
    at = layer.seen[:, None] - 1
    logits = _slot_logits(layer, layer.held_keys(), queries, at, how)
    probabilities = _softmax(logits, real)  # [R, H, G, 1, S]
    output = probabilities.flatten(2, 3).to(values.dtype) @ layer.held_values()
    layer.evict_one(probabilities.squeeze(3), real, how.sliding_window)
    return output.view(*queries.shape[:-1], -1)


def _prefill(
    layer: H2OLayer, queries: Tensor, keys: Tensor, values: Tensor, real: Tensor | None, how: _Logits
) -> Tensor:
    """A prompt in chunks (or whole): each attends to the slots and itself, then it is chosen who stays.

    Chunks count from each row's first real token, so that a padded row equals the same row alone: real
    tokens are moved to the front, and the output is moved back.
    """
    back = None
    if real is not None and not bool(real.all()):
        front = (~real).to(torch.uint8).argsort(dim=-1, stable=True)  # [R, N]
        back = front.argsort(-1)[:, None, None, :, None]
        order = front[:, None, :, None]
        keys, values = keys.take_along_dim(order, 2), values.take_along_dim(order, 2)
        queries = queries.take_along_dim(order.unsqueeze(1), 3)
        real = real.gather(-1, front)
    chunk = layer.plan.chunk if layer.plan.prefill == "chunked" else keys.shape[2]
    outputs = []
    for start in range(0, keys.shape[2], chunk):
        cut = slice(start, start + chunk)
        part = None if real is None else real[:, cut]
        outputs.append(_pass(layer, queries[..., cut, :], keys[:, :, cut], values[:, :, cut], part, how))
    output = torch.cat(outputs, 3)
    return output if back is None else output.take_along_dim(back, 3)


def _pass(
    layer: H2OLayer, queries: Tensor, keys: Tensor, values: Tensor, real: Tensor | None, how: _Logits
) -> Tensor:
    """One chunk, or a whole prompt; its keys take no slots until it is chosen who stays. -> [R, H, G, N, D]

    Queries go through in blocks, and what they gave is summed by column, so that no N x N matrix is held.
    """
    rows, heads, tokens = keys.shape[:3]
    if real is None:
        real = torch.ones(rows, tokens, dtype=torch.bool, device=keys.device)
    at = layer.seen[:, None] + real.cumsum(-1, dtype=torch.int32) - 1  # [R, N]
    new = at.masked_fill(~real, -1)
    # Queries that came after each one in its row. [R, N]
    later = (real.flip(-1).cumsum(-1).flip(-1) - 1).clamp_min(0)
    slots, groups = layer.positions.shape[-1], queries.shape[2]
    held_keys, held_values = layer.held_keys(), layer.held_values()
    gain = share = None
    by_head: Tensor | None = None
    outputs = []
    for start in range(0, tokens, BLOCK):
        cut = slice(start, start + BLOCK)
        end = min(start + BLOCK, tokens)  # later keys cannot be seen
        asked, when = queries[..., cut, :], at[:, cut]
        own = how(asked, keys[:, :, :end])
        own.masked_fill_(~how.visible(new[:, None, :end].expand(-1, heads, -1), when), -torch.inf)
        logits = torch.cat((_slot_logits(layer, held_keys, asked, when, how), own), -1)
        probabilities = _softmax(logits, real[:, cut])
        weights = probabilities.to(values.dtype).flatten(2, 3)  # [R, H, G * B, S + end]
        output = weights[..., :slots] @ held_values + weights[..., slots:] @ values[:, :, :end]
        outputs.append(output.view(*asked.shape[:-1], -1))

        received = torch.nn.functional.pad(probabilities.sum(2), (0, tokens - end))  # [R, H, B, S + N]
        fair = logits[:, :, 0].isfinite().sum(-1) / groups  # [R, H, B]
        more = gained(layer.policy, received, fair, when, later[:, cut])
        gain = more if gain is None else together(layer.policy, gain, more)
        if layer.policy.by_head:
            weight = (layer.policy.forget ** later[:, cut].to(received.dtype))[:, None, None, None]
            apart = torch.nn.functional.pad((weight @ probabilities).squeeze(3), (0, tokens - end))
            by_head = apart.transpose(-1, -2) + (0 if by_head is None else by_head)  # [R, H, S + N, G]
        if layer.plan.observe:
            remembered = (REMEMBER ** later[:, cut].to(received.dtype))[:, None, None] @ received
            share = remembered.squeeze(2) / groups + (0 if share is None else share)
    assert gain is not None
    layer.absorb(keys, values, new, gain, by_head, share, how.sliding_window)
    return torch.cat(outputs, 3)


def _padding_mask(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> Tensor | None:
    """Hands the 2-D padding mask through: causality is decided by stored positions, not by columns."""
    return attention_mask


AttentionInterface.register(NAME, h2o_attention)
AttentionMaskInterface.register(NAME, _padding_mask)
