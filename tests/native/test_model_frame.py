"""The frame of a configuration is probed, never looked up."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import FAMILIES as TINY
from tiny_models import VOCAB, WINDOW
from transformers import AutoConfig

from h2o_chat.base.errors import ModelError
from h2o_chat.cache.rope import Positions, Rope
from h2o_chat.native.layout import data_bytes, layout
from h2o_chat.native.model_frame import FAMILIES, Frame, Turning, as_json, from_json
from h2o_chat.native.probing import _ropes, frame_of

YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 256}
LLAMA3 = {
    **{"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0},
    **{"high_freq_factor": 4.0, "original_max_position_embeddings": 256},
}


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


def test_frequencies_are_those_of_the_formula() -> None:
    (rope,) = frame(rope_parameters={"rope_type": "default", "rope_theta": 500.0}).ropes
    assert rope.scale == 1
    assert rope.inv_freq == pytest.approx([500.0 ** (-2 * i / 16) for i in range(8)], rel=1e-6)


def test_scaled_rotations() -> None:
    (plain,) = frame().ropes
    (yarn,), (llama3,) = (frame(rope_parameters=one).ropes for one in (YARN, LLAMA3))
    assert yarn.scale == pytest.approx(0.1 * math.log(4) + 1)
    assert yarn.inv_freq[0] == plain.inv_freq[0]
    assert yarn.inv_freq[-1] == pytest.approx(plain.inv_freq[-1] / 4)
    assert llama3.scale == 1
    assert llama3.inv_freq[-1] == pytest.approx(plain.inv_freq[-1] / 8)


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


def ropes_of(*each: Rope | None) -> Any:
    """The frame's ropes of a model whose layers turn so."""

    class Narrow:
        class model:
            rotary_emb = None

    return _ropes(Narrow, Positions(64, each, learned=False), 16)


@pytest.mark.parametrize(
    ("rope", "why"),
    [
        (Rope(torch.ones(8), interleaved=True, size=16), "interleaved"),
        (Rope(torch.ones(4), interleaved=False, size=16, start=8), "the last components"),
    ],
)
def test_rotations_that_are_not_known(rope: Rope, why: str) -> None:
    found = ropes_of(None, rope)
    assert isinstance(found, str)
    assert why in found


def test_layers_that_turn_differently_share_what_they_share() -> None:
    one, two = (Rope(torch.full((8,), number), False, 16) for number in (1.0, 2.0))
    assert ropes_of(one, two, None, one) == (
        (Turning((1.0,) * 8, 1.0), Turning((2.0,) * 8, 1.0)),
        (0, 1, None, 0),
    )


def test_a_folder_is_refused_like_anywhere(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}))
    with pytest.raises(ModelError, match="is not supported"):
        frame_of(tmp_path)


def test_random_numbers_go_on_as_if_nobody_had_probed() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    frame()
    assert torch.equal(torch.rand(3), expected)


# -- from a file


@pytest.mark.parametrize("family", FAMILIES)
def test_written_and_read_again(family: str) -> None:
    found = frame(family, bits=4)
    assert from_json(json.loads(json.dumps(as_json(found)))) == found


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
