"""Finds out from a configuration whether the native step can compute a model, and builds its frame.

Rotations and sliding windows are not read from the configuration: a random model of the same layers, with
narrow matrices, is probed with one token (`transformers_cache/probe.py`). The native step thereby follows
transformers' interpretation of the configuration.
"""

import copy
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers

from h2o_chat.base.errors import ModelError
from h2o_chat.cache.forward_call import Step
from h2o_chat.cache.rope import Positions
from h2o_chat.models import gguf_config
from h2o_chat.models.gguf import header_of
from h2o_chat.models.load import check_family
from h2o_chat.native.layout import layer_parts
from h2o_chat.native.model_frame import (
    FAMILIES,
    FROM_GGUF,
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


def plain_frame(file: Path) -> Frame | None:
    """The frame of a GGUF file from its values alone: it spares the import of the model's class, a second.

    None where `frame_of` has to look: another family, a scaled rotation, biases. Raises ModelError if the
    file is damaged.
    """
    header = header_of(file)
    if header.architecture not in gguf_config.FAMILIES:
        return None
    config = gguf_config.config_of(header)
    family, layers, head_size = config["model_type"], config["num_hidden_layers"], config["head_dim"]
    rotations, experts, scale = config["rope_parameters"], config.get("num_experts", 0), 1.0
    types = config.get("layer_types") or ["full_attention"] * layers
    by_type = rotations if "full_attention" in rotations else dict.fromkeys(types, rotations)
    plain = all(one["rope_type"] in ("default", "linear") for one in by_type.values())
    gpt_oss = family == FROM_GGUF
    if head_size % 16 or family == "phi3" or (not gpt_oss and (not plain or config.get("attention_bias"))):
        return None
    if experts and (config["hidden_size"] % 16 or experts > MOST_EXPERTS):
        return None
    interval = config.get("no_rope_layer_interval")
    turnings = dict[str, Turning]()
    for one in types:
        rotation = by_type[one]
        powers = torch.arange(0, head_size, 2, dtype=torch.int64).float() / head_size
        # By torch, as in transformers: the last bit is its own.
        inv_freq = 1.0 / rotation["rope_theta"] ** powers / rotation.get("factor", 1.0)
        if not plain:
            from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # slow: gpt_oss alone needs it

            made = transformers.AutoConfig.for_model(**config)
            inv_freq, scale = ROPE_INIT_FUNCTIONS[rotation["rope_type"]](made, torch.device("cpu"))
        turnings.setdefault(one, Turning(tuple(inv_freq.tolist()), float(scale)))
    ropes = tuple(dict.fromkeys(turnings.values()))
    return frame_from(
        SimpleNamespace(**config),
        head_size,
        bits=8,
        bias=gpt_oss or family == "qwen2",
        head_norms=family in ("qwen3", "qwen3_moe", "olmoe", "olmo2", "gemma3_text"),
        window_tokens=config["max_position_embeddings"],
        ropes=ropes,
        rope_of=tuple(
            None if interval and number % interval == interval - 1 else ropes.index(turnings[one])
            for number, one in enumerate(types)
        ),
        sees=tuple(config["sliding_window"] if one == "sliding_attention" else None for one in types),
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
    for arena in cache.absorbed_arenas():
        seen.update(zip(arena.layers, arena.windows, strict=True))
    return tuple(seen[layer] for layer in range(len(positions.ropes)))
