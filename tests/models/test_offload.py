"""Weights in main memory: a conversation is the same with them. When they stay there: test_choices.py."""

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import cpu_offload, dispatch_model
from tiny_models import tiny

from h2o_chat.base.config import Settings
from h2o_chat.engine.runner import Runner, cache_for
from h2o_chat.lab.shared.shapes import byte_tokenizer
from h2o_chat.models.load import Loaded


def conversation(model: Any) -> torch.Tensor:
    """Logits of a prompt and of tokens after it, past the budget. [N, V]"""
    loaded = Loaded(model, byte_tokenizer(), "tiny", None, "none", "float32", "cpu")
    runner = Runner(loaded, cache_for(loaded, Settings(budget=16)))
    assert runner.device.type == "cpu"
    found = [runner.feed([list(range(1, 15))], prompt=True)[0, -1].clone()]
    for _ in range(12):
        found.append(runner.feed([[int(found[-1].argmax())]], prompt=False)[0, -1].clone())
    return torch.stack(found)


@pytest.mark.parametrize("where", ["main memory", "main memory and disk"])
def test_a_conversation_is_the_same(where: str, tmp_path: Path) -> None:
    """By accelerate's hooks, which put weights on the computing device as a layer runs: here on the CPU."""
    model = tiny("llama", "h2o", torch.float32)
    if where == "main memory":
        cpu_offload(model, execution_device=torch.device("cpu"))
        assert model.get_input_embeddings().weight.device.type == "meta"
    else:
        names = [name for name, _ in model.model.named_children() if name != "layers"]
        there = {f"model.{name}": "cpu" for name in names} | {"model.layers.0": "cpu", "lm_head": "disk"}
        dispatch_model(
            model, there | {f"model.layers.{n}": "disk" for n in (1, 2)}, offload_dir=str(tmp_path)
        )
    assert model.model.layers[1].mlp.up_proj.weight.device.type == "meta"
    assert torch.equal(conversation(model), conversation(tiny("llama", "h2o", torch.float32)))
