"""The weights of a transformers model as the step multiplies by them: few matrices, each read once a token.

Shapes: E numbers of the residual stream, H KV heads, G query heads per KV head, D head size, I numbers of
the MLP, V vocabulary.
"""

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from h2o_chat.graph.int4 import Int4, Int4Linear, packed
from h2o_chat.native.model_frame import Frame

Matrix = Tensor | Int4


@dataclass(frozen=True)
class LayerWeights:
    norm_attention: Tensor  # [E]
    qkv: Matrix  # [(H * G + 2 * H) * D, E]
    bias_qkv: Tensor | None  # [(H * G + 2 * H) * D]
    norm_query: Tensor | None  # [D]
    norm_key: Tensor | None  # [D]
    out: Matrix  # [E, H * G * D]
    norm_mlp: Tensor  # [E]
    gate_up: Matrix  # [2 * I, E]
    down: Matrix  # [E, I]


@dataclass(frozen=True)
class Weights:
    """All of them; those of the model itself, not copies."""

    embedding: Tensor  # [V, E]
    layers: tuple[LayerWeights, ...]
    norm: Tensor  # [E]
    head: Tensor  # [V, E]


def weights_of(model: Any, frame: Frame) -> Weights:
    """Joins matrices that are multiplied by the same numbers; the model's layers then hold parts of these."""
    layers = []
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        biases = [one.bias for one in projections if one.bias is not None]
        layers.append(
            LayerWeights(
                norm_attention=layer.input_layernorm.weight.detach(),
                qkv=_joined(projections),
                bias_qkv=torch.cat(biases).detach() if biases else None,
                norm_query=attention.q_norm.weight.detach() if frame.head_norms else None,
                norm_key=attention.k_norm.weight.detach() if frame.head_norms else None,
                out=_joined((attention.o_proj,)),
                norm_mlp=layer.post_attention_layernorm.weight.detach(),
                gate_up=_joined((mlp.gate_proj, mlp.up_proj)),
                down=_joined((mlp.down_proj,)),
            )
        )
    return Weights(
        embedding=model.get_input_embeddings().weight.detach(),
        layers=tuple(layers),
        norm=model.model.norm.weight.detach(),
        head=model.get_output_embeddings().weight.detach(),
    )


def to_int4(model: Any, device: torch.device) -> None:
    """Rounds the layers' matrices to 4 bits on a device and moves the rest there; layer by layer, so that the
    device never holds two forms of more than one matrix.

    A matrix whose columns are no whole blocks stays as it is.
    """
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, linear in list(part.named_children()):
                if isinstance(linear, nn.Linear) and linear.in_features % 256 == 0:
                    held = packed(linear.weight.detach().to(device))
                    bias = None if linear.bias is None else linear.bias.detach().to(device)
                    setattr(part, name, Int4Linear(held, bias, linear.weight.dtype))
    model.to(device)


def _joined(linears: tuple[Any, ...]) -> Matrix:
    """One matrix above the other; the layers get views of what comes out."""
    ends = accumulate(one.out_features for one in linears)
    places = [(one, slice(end - one.out_features, end)) for one, end in zip(linears, ends, strict=True)]
    if all(isinstance(one, Int4Linear) for one in linears):
        words = torch.cat([one.held.words for one in linears])
        scales = torch.cat([one.held.scales for one in linears])
        for one, rows in places:
            one.held = Int4(words[rows], scales[rows])
        return Int4(words, scales)
    joined = (
        torch.cat([one.weight.detach() for one in linears]) if len(linears) > 1 else linears[0].weight.data
    )
    for one, rows in places:
        one.weight.data = joined[rows]
    return joined
