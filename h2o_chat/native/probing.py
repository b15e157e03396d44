"""Finds out from a configuration whether the native step can compute a model, and builds its frame.

Rotations and sliding windows are not read from the configuration: a random model of the same layers, with
narrow matrices, is probed with one token (`transformers_cache/probe.py`). The native step thereby follows
transformers' interpretation of the configuration.
"""

import copy
import json
import re
from pathlib import Path
from typing import Any

import torch
import transformers

from h2o_chat.base.errors import ModelError
from h2o_chat.cache.forward_call import Step
from h2o_chat.cache.rope import Positions
from h2o_chat.models.load import check_family
from h2o_chat.native.layout import layer_parts
from h2o_chat.native.model_frame import (
    FAMILIES,
    GEMMA,
    MOST_EXPERTS,
    MOST_HEAD_SIZE,
    Frame,
    Turning,
    as_json,
    frame_from,
    from_json,
)
from h2o_chat.transformers_cache.cache import H2OCache
from h2o_chat.transformers_cache.probe import probe

_EXPERT = re.compile(r"experts\.\d+\.(?:gate_up|gate|up|(down))_proj\.weight")


def frame_of(model: Path | Any, bits: int = 8) -> Frame | str:
    """The frame of a model, by its folder or its configuration, or why the native step cannot compute it.

    Raises ModelError if the model of a folder cannot be run at all (`load.check_family`).
    """
    config = check_family(model) if isinstance(model, Path) else model
    if config.model_type not in FAMILIES:
        return f"it knows the families {', '.join(FAMILIES)}, and this is {config.model_type}"
    if getattr(config, "quantization_config", None):
        return "its weights are already quantised"
    gemma = config.model_type in GEMMA
    computes = config.hidden_activation if gemma else config.hidden_act
    if computes != ("gelu_pytorch_tanh" if gemma else "silu"):
        return f"its MLP computes {computes}, which is not known"
    if getattr(config, "clip_qkv", None) is not None:
        return "it clips queries, keys and values"
    if gemma and not (isinstance(scalar := config.query_pre_attn_scalar, int | float) and scalar > 0):
        return f"its query_pre_attn_scalar is {scalar!a}"
    hidden, experts = config.hidden_size, getattr(config, "num_experts", 0)
    if experts and hidden % 16:
        return f"its layers have experts and {hidden} numbers, which is no multiple of 16"
    if experts and not 0 < config.num_experts_per_tok <= experts <= MOST_EXPERTS:
        return f"a token takes {config.num_experts_per_tok:,} of {experts:,} experts"
    head_size = getattr(config, "head_dim", None) or hidden // config.num_attention_heads
    if head_size % 16 or head_size > MOST_HEAD_SIZE:  # the probe of a larger one takes seconds
        return f"its heads have {head_size} numbers, which is no multiple of 16 up to {MOST_HEAD_SIZE}"
    narrow = _narrow(config, head_size)
    if isinstance(narrow, str):
        return narrow
    try:
        positions = probe(narrow)
    except ModelError as error:
        return f"its rotations are not understood ({error.message})"
    found = _ropes(narrow, positions, head_size)
    if isinstance(found, str):
        return found
    ropes, rope_of = found
    names = {name for name, _ in narrow.model.layers[0].named_parameters()}
    frame = frame_from(
        config,
        head_size,
        bits,
        bias="self_attn.q_proj.bias" in names,
        head_norms="self_attn.q_norm.weight" in names,
        window_tokens=positions.window,
        ropes=ropes,
        rope_of=rope_of,
        sees=_sees(narrow, positions),
    )
    try:
        from_json(json.loads(json.dumps(as_json(frame))))  # as a packed file would have it
    except ValueError as error:
        return f"its configuration is out of range: {error}"
    return _differs(frame, narrow) or frame


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


def _differs(frame: Frame, narrow: Any) -> str:
    """Which weights or scale of attention a layer has that its frame has not; empty: it is all there."""
    sources = [source.name for part in layer_parts(frame, "", "") for source in part.sources]
    known = {_EXPERT.sub(lambda one: f"experts.{one[1] or 'gate_up'}_proj", name) for name in sources}
    scaling = frame.attention_scale or frame.head_size**-0.5
    for number, layer in enumerate(narrow.model.layers):
        if other := known ^ {name for name, _ in layer.named_parameters()}:
            return f"layer {number} has other weights than are known ({', '.join(sorted(other))})"
        if abs(layer.self_attn.scaling / scaling - 1) > 1e-6:
            return f"its attention is scaled by {layer.self_attn.scaling}"
    return ""


def _ropes(
    narrow: Any, positions: Positions, head_size: int
) -> tuple[tuple[Turning, ...], tuple[int | None, ...]] | str:
    scale = float(getattr(narrow.model.rotary_emb, "attention_scaling", 1.0))
    for number, rope in enumerate(positions.ropes):
        if rope is not None and rope.start:
            return f"layer {number} turns the last components of a head"
        if rope is not None and rope.interleaved:
            return f"layer {number} turns neighbouring components (interleaved RoPE)"
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
    for arena in cache.current_arenas():
        seen.update(zip(arena.layers, arena.windows, strict=True))
    return tuple(seen[layer] for layer in range(len(positions.ropes)))
