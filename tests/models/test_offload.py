"""Weights in main memory: when they stay there, and that a conversation is the same with them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from accelerate import cpu_offload, dispatch_model
from tiny_models import tiny

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import OutOfMemoryError
from h2o_chat.engine.runner import Runner, cache_for
from h2o_chat.lab.shared.shapes import byte_tokenizer
from h2o_chat.models import choices
from h2o_chat.models.load import Loaded
from h2o_chat.models.model_files import StoredWeights

BILLION = 10**9


def test_what_does_not_fit_stays_in_main_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision: there is no GPU to try it on. 14 GB of weights, 1 GB of slots and headroom."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(choices, "upload_bytes_per_s", lambda device: 20e9)
    config = transformers.LlamaConfig(num_hidden_layers=32)

    def choose(gpu: float, cpu: float, **given: Any) -> choices.Choice:
        def free(device: torch.device) -> int:
            return int((gpu if device.type == "cuda" else cpu) * BILLION)

        monkeypatch.setattr(choices, "free_bytes", free)
        settings = replace(Settings(quantize="none", budget=512), **given)
        return choices.choose("m", settings, config, StoredWeights(7 * BILLION, "F16", 14 * BILLION))

    assert choose(20, 20).room == ()
    small = choose(8, 20)
    assert 7 * BILLION < sum(small.room) < 8 * BILLION
    assert small.devices == (torch.device("cuda:0"),)
    stays = (14 * BILLION - sum(small.room)) / BILLION
    assert f"{stays:.1f} of 14.0 GB" in small.offload
    assert f"{stays / 20 * 1e3:.0f} ms" in small.offload
    for gpu, cpu, given in (
        (8, 4, {}),  # nor into main memory
        (8, 20, {"device": "cuda"}),  # asked for
        (3, 20, {"quantize": "nf4"}),  # 4 bits
        (0.3, 20, {}),  # not even the slots fit
    ):
        with pytest.raises(OutOfMemoryError):
            choose(gpu, cpu, **given)


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
