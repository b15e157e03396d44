"""A model's sizes, switches, rotations and windows, as the native step needs them. No torch."""

import math
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from h2o_chat.models.fits import Sizes

FAMILIES = (
    *("llama", "mistral", "qwen2", "qwen3", "smollm3", "qwen3_moe", "olmoe"),
    *("gemma2", "gemma3_text", "phi3", "olmo2", "granite"),
)
"""`config.model_type`s that the C++ step can compute."""
GEMMA = ("gemma2", "gemma3_text")
"""Those whose MLP computes gelu, and whose norms multiply by their weights + 1."""
FROM_GGUF = "gpt_oss"
"""One more, whose folders pack their experts in a way that is not read here: from GGUF files alone."""

HEAD_BITS = 8
"""Bits of output layer and embedding: with 4 the perplexity of pocket rises by another 7% (dev/LOG.md)."""
MOST_EXPERTS = 1024
"""Experts of a layer for which the C++ step has room."""
MOST_HEAD_SIZE = 1024
_MOST_COUNT = 2**24
_MOST_WINDOW = 2**31 - 1
_RANGES = {
    **dict.fromkeys(("hidden", "intermediate", "heads", "kv_heads", "vocabulary"), (1, _MOST_COUNT)),
    **{"layers": (1, 1024), "head_size": (1, MOST_HEAD_SIZE)},
    **dict.fromkeys(("experts", "chosen"), (0, MOST_EXPERTS)),
    "window_tokens": (1, _MOST_WINDOW),
}
"""(least, most) of a frame's whole numbers."""


@dataclass(frozen=True)
class Turning:
    """Rotation of a layer's queries and keys (RoPE)."""

    # [pairs] radians per position, exact fp32 numbers; component i pairs with i + pairs, others stay.
    inv_freq: tuple[float, ...]
    scale: float  # Factor of cosines and sines (YaRN); usually 1


@dataclass(frozen=True)
class Frame:
    """A model of one of `FAMILIES`, without its weights."""

    family: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    epsilon: float  # Epsilon of the norms
    tied: bool  # Whether the output layer shares the embedding's weights
    bias: bool  # Whether q, k and v have biases
    head_norms: bool  # Whether queries and keys are normalised per head before rotation
    window_tokens: int  # Longest context of the model's training
    ropes: tuple[Turning, ...]  # The distinct rotations
    rope_of: tuple[int | None, ...]  # Per layer: index into `ropes`; None: keys are not turned
    sees: tuple[int | None, ...]  # Per layer: tokens that a query sees, itself included; None: all before it
    bits: int  # Bits of the layers' weights, 4 or 8
    head_bits: int  # Bits of output layer and embedding, 4 or 8; normally `HEAD_BITS`
    experts: int = 0  # Experts of each layer, each an MLP; 0: one MLP that every token takes
    chosen: int = 0  # Experts that a token takes
    shares_add_up: bool = False  # Whether the shares of a token's experts are divided by their sum
    embedding_scale: float = 1.0  # Factor of the embedding's rows
    residual_scale: float = 1.0  # Factor of what attention and MLP give
    attention_scale: float = 0.0  # Factor of products of queries and keys; 0: 1 / sqrt(head_size)
    attention_cap: float = 0.0  # `cap * tanh(x / cap)` of these products; 0: they have no cap
    logits_scale: float = 1.0  # Divisor of the logits
    logits_cap: float = 0.0  # Cap of the logits, in the same way

    @property
    def whole_norms(self) -> bool:
        """Whether queries and keys are normalised over all heads together."""
        return self.family in ("olmoe", "olmo2")

    @property
    def gemma(self) -> bool:
        """Whether the MLP computes gelu, and norms multiply by their weights + 1."""
        return self.family in GEMMA

    @property
    def norms_before(self) -> bool:
        """Whether what attention and MLP are given is normalised."""
        return self.family != "olmo2"

    @property
    def norms_after(self) -> bool:
        """Whether what attention and MLP give is normalised."""
        return self.gemma or not self.norms_before

    @property
    def fused(self) -> bool:
        """Whether q, k and v stand in one tensor, gate and up in another."""
        return self.family == "phi3"

    @property
    def gpt_oss(self) -> bool:
        """Whether there are sinks, biases everywhere, and a gate within limits."""
        return self.family == "gpt_oss"

    @property
    def mlps(self) -> list[str]:
        """Prefixes of the names of a layer's MLPs."""
        return [f"experts.{number}." for number in range(self.experts)] or [""]


def frame_sizes(frame: Frame) -> Sizes:
    return Sizes(
        frame.layers, frame.hidden, frame.heads, frame.kv_heads, frame.head_size, frame.vocabulary, frame.tied
    )


def frame_from(config: Any, head_size: int, bits: int, **found: Any) -> Frame:
    """The frame of a configuration in transformers' terms.

    `found` has what no one name of all families says: bias, head_norms, window_tokens, ropes, rope_of, sees.
    """
    experts = getattr(config, "num_experts", 0)
    gemma = config.model_type in GEMMA
    return Frame(
        family=config.model_type,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        intermediate=getattr(config, "moe_intermediate_size", config.intermediate_size),
        heads=config.num_attention_heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
        head_size=head_size,
        vocabulary=config.vocab_size,
        epsilon=float(config.rms_norm_eps),
        tied=bool(config.tie_word_embeddings),
        bits=bits,
        head_bits=HEAD_BITS,
        experts=experts,
        chosen=config.num_experts_per_tok if experts else 0,
        shares_add_up=bool(experts and config.norm_topk_prob),
        embedding_scale=config.hidden_size**0.5
        if gemma
        else float(getattr(config, "embedding_multiplier", 1)),
        residual_scale=float(getattr(config, "residual_multiplier", 1.0)),
        attention_scale=config.query_pre_attn_scalar**-0.5
        if gemma
        else float(getattr(config, "attention_multiplier", 0.0)),
        attention_cap=float(getattr(config, "attn_logit_softcapping", None) or 0),
        logits_scale=float(getattr(config, "logits_scaling", 1.0)),
        logits_cap=float(getattr(config, "final_logit_softcapping", None) or 0),
        **found,
    )


_LATER = {one.name: one.default for one in fields(Frame) if one.default is not MISSING}
"""Fields that packed files of older versions lack."""
_OF_EXPERTS = ("experts", "chosen", "shares_add_up")
_FACTORS = [name for name, usual in _LATER.items() if isinstance(usual, float)]


def as_json(frame: Frame) -> dict[str, Any]:
    """The frame without what is as usual, as versions wrote it that knew nothing else."""
    usual = {name: one for name, one in _LATER.items() if not (frame.experts and name in _OF_EXPERTS)}
    return {name: value for name, value in asdict(frame).items() if name not in usual or value != usual[name]}


def from_json(data: Any) -> Frame:
    """A frame from a JSON object. Raises ValueError, with name and value, if a field is missing or wrong."""
    if isinstance(data, dict):
        data = _LATER | data
    if not isinstance(data, dict) or set(data) != set(Frame.__dataclass_fields__):
        raise ValueError("the frame lacks a field, or has one that is not known")
    for name, (least, most) in _RANGES.items():
        _require(type(data[name]) is int and least <= data[name] <= most, data, name)
    layers, head_size, experts, chosen = (data[one] for one in ("layers", "head_size", "experts", "chosen"))
    for name in ("tied", "bias", "head_norms", "shares_add_up"):
        _require(type(data[name]) is bool, data, name)
    _require(data["family"] in FAMILIES, data, "family")
    for name in _FACTORS:
        _require(_positive(data[name]) or data[name] == _LATER[name] == 0.0, data, name)
    _require(_positive(data["epsilon"]), data, "epsilon")
    _require(head_size % 16 == 0, data, "head_size")
    _require(data["heads"] % data["kv_heads"] == 0, data, "kv_heads")
    _require(data["heads"] * head_size <= _MOST_COUNT, data, "heads")  # rows of a matrix are int32
    for name in ("bits", "head_bits"):
        _require(type(data[name]) is int and data[name] in (4, 8), data, name)
    _require(min(experts, 1) <= chosen <= experts, data, "chosen")
    _require(experts * layers <= 2**16 and (not experts or data["hidden"] % 16 == 0), data, "experts")
    _require(isinstance(data["ropes"], list) and len(data["ropes"]) <= layers, data, "ropes")
    ropes = tuple(_turning(one, head_size) for one in data["ropes"])
    for name, least, most in (("rope_of", 0, len(ropes) - 1), ("sees", 1, _MOST_WINDOW)):
        column = data[name]
        _require(
            isinstance(column, list)
            and len(column) == layers
            and all(one is None or (type(one) is int and least <= one <= most) for one in column),
            data,
            name,
        )
    return Frame(**data | {"ropes": ropes, "rope_of": tuple(data["rope_of"]), "sees": tuple(data["sees"])})


def _turning(data: Any, head_size: int) -> Turning:
    if (
        not isinstance(data, dict)
        or set(data) != {"inv_freq", "scale"}
        or not _positive(data["scale"])
        or not isinstance(data["inv_freq"], list)
        or not 0 < len(data["inv_freq"]) * 2 <= head_size
        or not all(type(one) is float and math.isfinite(one) for one in data["inv_freq"])
    ):
        raise ValueError("ropes holds something that is no rotation")
    return Turning(tuple(data["inv_freq"]), data["scale"])


def _positive(value: Any) -> bool:
    return type(value) is float and math.isfinite(value) and value > 0


def _require(good: bool, data: dict[str, Any], name: str) -> None:
    if not good:
        raise ValueError(f"{name} is {str(data[name])[:60]}")
