"""Architectures of GGUF files that differ from llama in norms, scales, windows or the division of weights.

Values that files leave out are those of llama.cpp (src/models). The layers of gemma4 differ from one another:
transformers reads its files too, but neither the layers that share keys and values nor the second rotation.
No torch.
"""

import struct
from math import inf
from typing import Any

from h2o_chat.models.gguf import Header, damaged

_SCALES = {
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "attention_multiplier": "attention.scale",
    "logits_scaling": "logit_scale",
}
_LAYERS_OF_27B = {"gemma2": 46, "gemma3": 62}
"""These models alone scale attention by the numbers of all heads together."""
_CAPS = ("attn_logit_softcapping", "final_logit_softcapping")
_USUAL_CAPS = {"gemma2": (50.0, 30.0), "gemma3": (0.0, 0.0)}
ROPE_FREQS = "rope_freqs.weight"
LONG_ROPE = {one: f"rope_factors_{one}.weight" for one in ("short", "long")}
"""Tensors of phi3: the factors of its frequencies in its first window, and beyond."""
Names = dict[str, tuple[str, tuple[int, ...]]]


def config_of_variant(header: Header, config: dict[str, Any]) -> dict[str, Any]:
    """The values of config.json in which gemma 2 and 3, phi3, olmo2 and granite differ; else nothing.

    Raises ModelError if a value is missing or wrong.
    """
    kind = header.architecture
    if kind in _LAYERS_OF_27B:
        return _gemma(header, config)
    if kind == "phi3":
        return _phi3(header, config)
    if kind == "granite":
        return _granite(header, config)
    if kind == "olmo2" and f"{kind}.attention.sliding_window" in header.values:
        raise damaged(header.path, "it is an olmo3 model, whose rotations are not read from GGUF files")
    return {}


def _granite(header: Header, config: dict[str, Any]) -> dict[str, Any]:
    if header.values.get("granite.rope.scaling.finetuned") is False:
        raise damaged(header.path, "it turns no keys, which is not read from GGUF files")
    there = {name: f"granite.{one}" for name, one in _SCALES.items()}
    usual = dict.fromkeys(there, 1.0) | {"attention_multiplier": config["head_dim"] ** -0.5}
    return {
        name: header.number(key) if header.values.get(key) else usual[name] for name, key in there.items()
    }


def _gemma(header: Header, config: dict[str, Any]) -> dict[str, Any]:
    kind, layers = header.architecture, config["num_hidden_layers"]
    pattern = f"{kind}.attention.sliding_window_pattern"
    if isinstance(header.values.get(pattern, 0), int):
        every = header.whole(pattern, 2 if kind == "gemma2" else 6)
        near = [number % every < every - 1 for number in range(layers)]
    else:
        near = [bool(one) for one in header.numbers(pattern)]
    window = header.values.get(key := f"{kind}.attention.sliding_window")
    if len(near) != layers:
        raise damaged(header.path, f"{pattern} is of {len(near):,} layers, and there are {layers:,}")
    if kind == "gemma3" and not window:
        near = [False] * layers
    rotation = config["rope_parameters"]
    if kind == "gemma3":
        # Files that ollama made call both rotations otherwise.
        near_theta = header.number("gemma3.rope.local.freq_base", 10_000.0)
        local = {"rope_type": "default", "rope_theta": header.number("gemma3.rope.freq_base_swa", near_theta)}
        if "gemma3.rope.freq_base" not in header.values:
            rotation |= {"rope_theta": header.number("gemma3.rope.global.freq_base", 10_000.0)}
        rotation = {"full_attention": rotation, "sliding_attention": local}
    all_heads = config["hidden_size"] // config["num_attention_heads"]
    if not all_heads:
        raise damaged(
            header.path, f"{config['num_attention_heads']:,} heads share {config['hidden_size']:,} numbers"
        )
    caps = {}
    for name, usual in zip(_CAPS, _USUAL_CAPS[kind], strict=True):
        has_cap = usual or header.values.get(f"{kind}.{name}")
        caps[name] = header.number(f"{kind}.{name}", usual or None) if has_cap else None
    return caps | {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": all_heads if layers == _LAYERS_OF_27B[kind] else config["head_dim"],
        "sliding_window": header.whole(key) if window else 4096,
        "layer_types": ["sliding_attention" if one else "full_attention" for one in near],
        "rope_parameters": rotation,
    }


def _phi3(header: Header, config: dict[str, Any]) -> dict[str, Any]:
    rotation, head = dict(config["rope_parameters"]), config["head_dim"]
    turned = header.whole("phi3.rope.dimension_count", head)
    if turned > head or turned % 2:
        raise damaged(header.path, f"{turned:,} of the {head:,} numbers of a head are turned")
    rotation["partial_rotary_factor"] = turned / head
    window = "phi3.attention.sliding_window"  # 0: none
    found = {
        "rope_parameters": rotation,
        "sliding_window": header.whole(window) if header.values.get(window) else None,
    }
    if header.tensors.keys() & LONG_ROPE.values():
        rotation |= {
            f"{one}_factor": list(rope_factors(header, turned, name)) for one, name in LONG_ROPE.items()
        }
        rotation["rope_type"] = "longrope"
        if (scale := "phi3.rope.scaling.attn_factor") in header.values:
            rotation["attention_factor"] = header.number(scale)
        original = header.whole("phi3.rope.scaling.original_context_length")
        rotation["original_max_position_embeddings"] = found["original_max_position_embeddings"] = original
    return found


def named(kind: str, config: dict[str, Any], layer: Names) -> Names:
    """(name in the file, shape) of the weights of a layer, from those of llama."""
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    given: Names = {
        "post_attention_layernorm.weight": ("post_attention_norm.weight", (hidden,)),
        "post_feedforward_layernorm.weight": ("post_ffw_norm.weight", (hidden,)),
    }
    if kind in ("gemma2", "gemma3_text"):
        return layer | given | {"pre_feedforward_layernorm.weight": layer["post_attention_layernorm.weight"]}
    if kind == "olmo2":
        return {name: one for name, one in layer.items() if name != "input_layernorm.weight"} | given
    if kind == "phi3":
        rows = (heads + 2 * config["num_key_value_heads"]) * config["head_dim"]
        parts = {f"self_attn.{one}_proj.weight" for one in "qkv"} | {
            f"mlp.{one}_proj.weight" for one in ("gate", "up")
        }
        return {name: one for name, one in layer.items() if name not in parts} | {
            "self_attn.qkv_proj.weight": ("attn_qkv.weight", (rows, hidden)),
            "mlp.gate_up_proj.weight": ("ffn_up.weight", (2 * inner, hidden)),
        }
    return layer


def gemma4_config(header: Header) -> dict[str, Any]:
    """The values of config.json that only gemma4 has. Raises ModelError if one is missing or wrong."""

    def whole(name: str) -> int:
        return header.whole(f"gemma4.{name}")

    def whole_or_0(name: str) -> int:
        return whole(name) if header.values.get(f"gemma4.{name}") else 0

    def each(name: str) -> list[float]:
        """A number of each layer, for which a file may give one for all."""
        one_for_all = isinstance(header.values.get(f"gemma4.{name}"), int)
        return [whole(name)] * layers if one_for_all else list(header.numbers(f"gemma4.{name}"))

    layers, sizes = whole("block_count"), (whole("attention.key_length_swa"), whole("attention.key_length"))
    near, inner = each("attention.sliding_window_pattern"), each("feed_forward_length")
    heads, softcap = each("attention.head_count_kv"), "gemma4.final_logit_softcapping"
    if not len(near) == len(inner) == len(heads) == layers or near[-1]:
        raise damaged(header.path, "its values are of another number of layers, or the last has a window")
    turned = (whole("rope.dimension_count_swa"), whole("rope.dimension_count"))
    if turned != sizes:
        raise damaged(header.path, f"{turned} numbers of heads of {sizes} are turned")
    far = near.index(0)
    near_rope = {"rope_type": "default", "rope_theta": header.number("gemma4.rope.freq_base_swa")}
    far_rope = {"rope_type": "proportional", "rope_theta": header.number("gemma4.rope.freq_base")}
    far_rope["partial_rotary_factor"] = _turned(header, sizes[1])
    return {
        "head_dim": sizes[0],
        "global_head_dim": sizes[1],
        "layer_types": ["sliding_attention" if one else "full_attention" for one in near],
        "sliding_window": whole("attention.sliding_window"),
        "intermediate_size": inner[0],
        "use_double_wide_mlp": inner[-1] == 2 * inner[0],
        "num_key_value_heads": heads[near.index(1) if 1 in near else far],
        "num_global_key_value_heads": heads[far],
        "attention_k_eq_v": f"blk.{far}.attn_v.weight" not in header.tensors,
        "num_kv_shared_layers": whole_or_0("attention.shared_kv_layers"),
        "hidden_size_per_layer_input": whole_or_0("embedding_length_per_layer_input"),
        "vocab_size_per_layer_input": header.tensors["token_embd.weight"].shape[0],
        "final_logit_softcapping": header.number(softcap) if softcap in header.values else None,
        "rope_parameters": {"sliding_attention": near_rope, "full_attention": far_rope},
        "enable_moe_block": whole_or_0("expert_count") > 0,
        "num_experts": whole_or_0("expert_count"),
        "top_k_experts": whole_or_0("expert_used_count"),
        "moe_intermediate_size": whole_or_0("expert_feed_forward_length"),
    }


def rope_factors(header: Header, head_size: int, name: str = ROPE_FREQS) -> tuple[float, ...]:
    """The numbers by which the file divides the frequencies of a head. [head_size / 2]

    Raises ModelError if they are missing, or of another number or type.
    """
    stored = header.tensors.get(name)
    if stored is None or stored.shape != (head_size // 2,) or stored.kind_name != "F32":
        raise damaged(header.path, f"{name} is missing, or not {head_size // 2} numbers in F32")
    with stored.file.open("rb") as file:
        file.seek(stored.start)
        factors = struct.unpack(f"<{head_size // 2}f", file.read(stored.bytes))
    if not all(0 < one < inf for one in factors):
        raise damaged(header.path, f"{name} holds a factor that is not above 0")
    return factors


def _turned(header: Header, head_size: int) -> float:
    """The share of a head that is turned: the factors of the rest are 10^30."""
    factors = rope_factors(header, head_size)
    turned = factors.count(1.0)
    if factors[:turned] != (1.0,) * turned or any(not one > 1e20 for one in factors[turned:]):
        raise damaged(header.path, f"{ROPE_FREQS} is not 1 up to a place, and 10^30 from there on")
    return (turned + 0.25) / (head_size // 2)  # transformers rounds down
