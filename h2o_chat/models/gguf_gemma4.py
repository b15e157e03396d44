"""Configuration of a GGUF file of gemma4, whose layers differ from one another. No torch.

transformers reads such files too, but neither the layers that share keys and values nor the second rotation.
"""

import struct
from math import inf
from typing import Any

from h2o_chat.models.gguf import Header, damaged

ROPE_FREQS = "rope_freqs.weight"


def gemma4_config(header: Header) -> dict[str, Any]:
    """The values of config.json that only gemma4 has.

    Raises:
        ModelError: a value is missing or wrong.
    """

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

    Raises:
        ModelError: they are missing, or of another number or type.
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
