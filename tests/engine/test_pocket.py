"""The bundled model: what ships, and that it answers as it did."""

import json
from pathlib import Path

import pytest
from safetensors import safe_open

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Token
from h2o_chat.models.load import Loaded, load

ROOT = Path(__file__).parents[2]
POCKET = ROOT / "assets" / "pocket"
MIB = 2**20

GOLDEN = {
    "My name is Ada. What is my name?": [421, 381, 2057, 70, 19, 5],
    "Hello! Who are you?": [46, 473, 1190, 2897, 17, 264, 2295, 285, 1214, 90, 867, 2565, 418, 19, 5],
    "I want to book a table for two tonight.": [370, 509, 354, 286, 407, 282, 578, 36, 5],
}
"""Greedy token ids of whole answers, in fp32."""


@pytest.fixture(scope="module")
def loaded(device: str) -> Loaded:
    return load(Settings(threads=1, device=device, dtype="float32"), lambda *_: None)


def answer(loaded: Loaded, *said: str) -> tuple[list[int], str]:
    chat = Chat(Engine(loaded, Settings()), Settings())
    for text in said:
        events = list(chat.send(text, Sampling(max_tokens=48)))
    return [event.id for event in events if isinstance(event, Token)], chat.messages[-1].text


@pytest.mark.parametrize("said", GOLDEN)
def test_golden_tokens(loaded: Loaded, said: str) -> None:
    ids, text = answer(loaded, said)
    assert ids == GOLDEN[said], f"it said {text!r}: {ids}"


def test_knows_a_name_told_before(loaded: Loaded) -> None:
    assert "Boris" in answer(loaded, "Hi, I am Boris.", "I like films.", "What is my name?")[1]


def test_is_a_stock_llama_of_a_few_megabytes() -> None:
    config = json.loads((POCKET / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["max_position_embeddings"] == 2048
    assert config["num_key_value_heads"] < config["num_attention_heads"]
    assert config["tie_word_embeddings"]
    assert 4000 <= config["vocab_size"] <= 8192
    sizes = [file.stat().st_size for file in POCKET.iterdir()]
    assert max(sizes) <= 15 * MIB
    assert sum(sizes) <= 30 * MIB
    with safe_open(POCKET / "model.safetensors", framework="pt") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"F16"}  # noqa: SIM118
