"""Configurations that transformers reads and that nothing can be computed with: found by the fuzzer."""

import pytest
import transformers

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ModelError
from h2o_chat.models.fits import sizes_of, slot_bytes
from h2o_chat.native import library
from h2o_chat.native.native_model import frame_or_why_not


def test_no_heads_are_named() -> None:
    config = transformers.LlamaConfig(num_attention_heads=4, num_key_value_heads=4)
    config.num_attention_heads = config.num_key_value_heads = 0
    with pytest.raises(ModelError, match="0 attention heads"):
        slot_bytes(sizes_of(config), 4)


@pytest.mark.skipif(bool(library.why_not()), reason="there is no native library")
def test_a_number_that_is_none_is_named() -> None:
    config = transformers.LlamaConfig(hidden_size=32, num_attention_heads=1, num_hidden_layers=1)
    config.rms_norm_eps = float("nan")
    with pytest.raises(ModelError, match="rms_norm_eps"):
        frame_or_why_not(Settings(model="x"), config)
