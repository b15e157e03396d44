"""Finds out from a configuration whether the native step can compute a model, and builds its frame.

Rotations and sliding windows are not read from the configuration: a random model of the same layers, with
narrow matrices, is probed with one token (`transformers_cache/probe.py`). The native step thereby follows
transformers' interpretation of the configuration.
"""

import copy
from pathlib import Path
from typing import Any

import torch
import transformers

from h2o_chat.base.errors import ModelError
from h2o_chat.cache.forward_call import Step
from h2o_chat.cache.rope import Positions
from h2o_chat.models.load import check_family
from h2o_chat.native.model_frame import FAMILIES, MOST_EXPERTS, Frame, Turning, frame_from
from h2o_chat.transformers_cache.cache import H2OCache
from h2o_chat.transformers_cache.probe import probe

_LAYER = {
    *("input_layernorm.weight", "post_attention_layernorm.weight"),
    *(f"self_attn.{name}_proj.weight" for name in "qkvo"),
}
_MLP = {f"mlp.{name}_proj.weight" for name in ("gate", "up", "down")}
_EXPERTS = {"mlp.gate.weight", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"}
_BIASES = {f"self_attn.{name}_proj.bias" for name in "qkv"}
_NORMS = {"self_attn.q_norm.weight", "self_attn.k_norm.weight"}


def frame_of(model: Path | Any, bits: int = 8) -> Frame | str:
    """The frame of a model, or in words why the native step cannot compute it.

    Args:
        model: its folder, or its configuration.
        bits: of the layers' weights, 4 or 8.

    Raises:
        ModelError: the model of a folder cannot be run at all (`load.check_family`).
    """
    config = check_family(model) if isinstance(model, Path) else model
    if config.model_type not in FAMILIES:
        return f"it knows the families {', '.join(FAMILIES)}, and this is {config.model_type}"
    if getattr(config, "quantization_config", None):
        return "its weights are already quantised"
    if config.hidden_act != "silu":
        return f"its MLP computes {config.hidden_act}, and only silu is known"
    if getattr(config, "clip_qkv", None) is not None:
        return "it clips queries, keys and values"
    hidden, experts = config.hidden_size, getattr(config, "num_experts", 0)
    if experts and hidden % 16:
        return f"its layers have experts and {hidden} numbers, which is no multiple of 16"
    if experts and not 0 < config.num_experts_per_tok <= experts <= MOST_EXPERTS:
        return f"a token takes {config.num_experts_per_tok:,} of {experts:,} experts"
    head_size = getattr(config, "head_dim", None) or hidden // config.num_attention_heads
    if head_size % 16:
        return f"its heads have {head_size} numbers, which is no multiple of 16"
    narrow = _narrow(config, head_size)
    if isinstance(narrow, str):
        return narrow
    names = _weights_of_a_layer(narrow)
    if isinstance(names, str):
        return names
    try:
        positions = probe(narrow)
    except ModelError as error:
        return f"its rotations are not understood ({error.message})"
    found = _ropes(narrow, positions, head_size)
    if isinstance(found, str):
        return found
    ropes, rope_of = found
    return frame_from(
        config,
        head_size,
        bits,
        bias=bool(names & _BIASES),
        head_norms=bool(names & _NORMS),
        window_tokens=positions.window,
        ropes=ropes,
        rope_of=rope_of,
        sees=_sees(narrow, positions),
    )


def _narrow(config: Any, head_size: int) -> Any:
    """A random model of the same layers and head size with narrow matrices; or why it cannot be made."""
    from h2o_chat.transformers_cache import registered  # a slow import, needed only to pack

    config = copy.deepcopy(config)
    config.head_dim = head_size
    config.hidden_size = config.intermediate_size = head_size  # olmoe's norms take it for all heads together
    if getattr(config, "num_experts", 0):
        config.num_experts, config.num_experts_per_tok, config.moe_intermediate_size = 2, 1, 16
    config.num_attention_heads = config.num_key_value_heads = 1
    config.vocab_size, config.pad_token_id = 2, 0
    config.dtype = torch.float32
    # The random state outside is left unchanged for sampling.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            model = transformers.AutoModelForCausalLM.from_config(
                config, attn_implementation=registered.NAME, dtype=torch.float32
            )
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            return f"a small model of its configuration cannot be made ({type(error).__name__}: {error})"
    return model.eval()


def _weights_of_a_layer(narrow: Any) -> set[str] | str:
    """Names of weights in a layer, equal in all; or which weights the native step does not support."""
    layers = [{name for name, _ in layer.named_parameters()} for layer in narrow.model.layers]
    for number, names in enumerate(layers):
        known = _LAYER | (_EXPERTS if names & _EXPERTS else _MLP)
        known |= (_BIASES if names & _BIASES else set()) | (_NORMS if names & _NORMS else set())
        if names != known or names != layers[0]:
            return f"layer {number} has other weights than are known ({', '.join(sorted(names ^ known))})"
    for layer in narrow.model.layers:
        attention = layer.self_attn
        if abs(attention.scaling * attention.head_dim**0.5 - 1) > 1e-6:
            return f"its attention is scaled by {attention.scaling}"
    return layers[0]


def _ropes(
    narrow: Any, positions: Positions, head_size: int
) -> tuple[tuple[Turning, ...], tuple[int | None, ...]] | str:
    scale = float(getattr(narrow.model.rotary_emb, "attention_scaling", 1.0))
    for number, rope in enumerate(positions.ropes):
        if rope is None:
            continue
        if rope.interleaved:
            return f"layer {number} turns neighbouring components (interleaved RoPE)"
        if 2 * len(rope.inv_freq) != head_size:
            return f"layer {number} turns only {2 * len(rope.inv_freq)} of {head_size} components"
    different = {id(rope): rope for rope in positions.ropes if rope is not None}
    place = {name: at for at, name in enumerate(different)}
    turnings = tuple(Turning(tuple(rope.inv_freq.float().tolist()), scale) for rope in different.values())
    return turnings, tuple(None if rope is None else place[id(rope)] for rope in positions.ropes)


@torch.no_grad()
def _sees(narrow: Any, positions: Positions) -> tuple[int | None, ...]:
    """Per layer: tokens that a query sees, itself included."""
    cache = H2OCache(budget=8, policy="window", positions=positions)
    cache.prepare(Step(1))
    narrow(torch.ones(1, 1, dtype=torch.long), position_ids=cache.position_ids(), past_key_values=cache)
    seen: dict[int, int | None] = {}
    for arena in cache.arenas:
        seen.update(zip(arena.layers, arena.windows, strict=True))
    return tuple(seen[layer] for layer in range(len(positions.ropes)))
