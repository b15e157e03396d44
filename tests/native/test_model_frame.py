"""The frame of a configuration is probed, never looked up."""

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import FAMILIES as TINY
from tiny_models import VOCAB, WINDOW
from transformers import AutoConfig

from h2o_chat.cache.rope import Positions, Rope
from h2o_chat.native.layout import data_bytes, layout
from h2o_chat.native.model_frame import FAMILIES, Frame, as_json, from_json
from h2o_chat.native.probing import _ropes, frame_of


def config(family: str = "llama", **changes: Any) -> Any:
    kept = TINY[family] | {"vocab_size": VOCAB, "pad_token_id": 0, "head_dim": 16}
    return AutoConfig.for_model(family, **kept | changes)


def frame(family: str = "llama", bits: int = 8, **changes: Any) -> Frame:
    found = frame_of(config(family, **changes), bits)
    assert isinstance(found, Frame), found
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_families(family: str) -> None:
    found = frame(family, tie_word_embeddings=False)
    assert (found.family, found.layers, found.hidden, found.intermediate) == (family, 3, 32, 48)
    assert (found.heads, found.kv_heads, found.head_size, found.vocabulary) == (4, 2, 16, VOCAB)
    assert (found.tied, found.window_tokens, found.head_bits) == (False, 1024, 8)
    assert found.bias is (family == "qwen2")
    assert found.head_norms is (family in ("qwen3", "qwen3_moe", "olmoe", "olmo2", "gemma3_text"))
    experts = {"qwen3_moe": (6, 2, True), "olmoe": (6, 2, False)}
    assert (found.experts, found.chosen, found.shares_add_up) == experts.get(family, (0, 0, False))
    sees = dict.fromkeys(("mistral", "phi3"), (WINDOW,) * 3)
    sees |= dict.fromkeys(("qwen2", "qwen3", "gemma2", "gemma3_text"), (WINDOW, None, WINDOW))
    assert found.sees == sees.get(family, (None,) * 3)
    rope_of = {"smollm3": (0, None, 0), "gemma3_text": (0, 1, 0)}.get(family, (0, 0, 0))
    assert found.rope_of == rope_of
    assert len(found.ropes) == 1 + max(number or 0 for number in rope_of)
    assert from_json(json.loads(json.dumps(as_json(found)))) == found, "written and read again"


@pytest.mark.parametrize(
    ("family", "changes", "why"),
    [
        ("gpt_neox", {}, "this is gpt_neox"),
        ("gemma2", {"hidden_activation": "gelu"}, "computes gelu"),
        ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
        ("gemma3_text", {"query_pre_attn_scalar": -4}, "query_pre_attn_scalar is -4"),
        ("granite", {"residual_multiplier": 0.0}, "out of range: residual_scale is 0.0"),
        ("granite", {"logits_scaling": -1.0}, "out of range: logits_scale is -1.0"),
        ("llama", {"head_dim": 1040}, "no multiple of 16 up to 1024"),
        ("llama", {"hidden_act": "gelu"}, "computes gelu"),
        ("llama", {"head_dim": 8}, "8 numbers, which is no multiple of 16"),
        ("llama", {"attention_bias": True}, "self_attn.o_proj.bias"),
        ("llama", {"mlp_bias": True}, "mlp.gate_proj.bias"),
        ("qwen3", {"attention_bias": True}, "self_attn.o_proj.bias"),
        ("olmoe", {"num_experts_per_tok": 7}, "takes 7 of 6 experts"),
        ("olmoe", {"num_experts": 1025}, "takes 2 of 1,025 experts"),
        ("olmoe", {"clip_qkv": 8.0}, "clips queries"),
        ("olmoe", {"hidden_size": 40, "num_attention_heads": 5}, "40 numbers, which is no multiple of 16"),
        ("qwen3_moe", {"mlp_only_layers": [1]}, "layer 1 has other weights"),
        ("llama", {"quantization_config": {"quant_method": "bitsandbytes"}}, "already quantised"),
    ],
)
def test_refused_in_words(family: str, changes: dict[str, Any], why: str) -> None:
    found = frame_of(config(family, **changes))
    assert isinstance(found, str)
    assert why in found


@pytest.mark.parametrize(
    ("rope", "why"),
    [
        (Rope(torch.ones(8), interleaved=True, size=16), "interleaved"),
        (Rope(torch.ones(4), interleaved=False, size=16, start=8), "the last components"),
    ],
)
def test_rotations_that_are_not_known(rope: Rope, why: str) -> None:
    class Narrow:
        class model:
            rotary_emb = None

    found = _ropes(Narrow, Positions(64, (None, rope), learned=False), 16)
    assert isinstance(found, str)
    assert why in found


def test_random_numbers_go_on_as_if_nobody_had_probed() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    frame()
    assert torch.equal(torch.rand(3), expected)


# -- from a file


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.one_of(st.none(), st.integers(), st.floats()), max_size=4),
    st.sampled_from([10**30, {}, [{}], [[]], "llama", 1.0, 16]),
)


@given(st.sampled_from(sorted(Frame.__dataclass_fields__)), ODD)
def test_any_other_value_is_refused_or_makes_a_layout(name: str, value: Any) -> None:
    data = json.loads(json.dumps(as_json(EXAMPLE)))
    data[name] = value
    try:
        found = from_json(data)
    except ValueError:
        return
    assert isinstance(found, Frame)
    places = layout(found)
    assert data_bytes(found) >= sum(place.bytes for place in places)
    assert all(place.offset % 64 == 0 for place in places)


EXAMPLE = frame("smollm3")


def test_heads_that_no_matrix_has_are_refused() -> None:
    """Each number is one that a frame may have; their product is more rows than the library counts."""
    data = as_json(frame()) | {"heads": 2**22, "kv_heads": 2**22}
    with pytest.raises(ValueError, match="heads is 4194304"):
        from_json(data)
