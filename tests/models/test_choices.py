"""On which device, in which precision, packed how: what is chosen, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ModelError, OutOfMemoryError, UsageError
from h2o_chat.models import choices
from h2o_chat.models.model_files import StoredWeights

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")
BILLION = 10**9
Choose = Callable[..., choices.Choice]


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Choose:
    """Decides for a model in half precision on a machine that is not here; room is in GB."""

    def choose(parameters: int, gpus: int, gpu: float, cpu: float, **given: Any) -> choices.Choice:
        free = {"cuda": gpu, "cpu": cpu}
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(choices, "upload_bytes_per_s", lambda device: 20e9)
        monkeypatch.setattr(choices, "free_bytes", lambda device: int(free[device.type] * BILLION))
        settings = replace(Settings(quantize="none", budget=512), **given)
        weights = StoredWeights(parameters, "F16", 2 * parameters)
        return choices.choose("m", settings, transformers.LlamaConfig(num_hidden_layers=32), weights)

    return choose


def test_all_gpus_where_one_is_too_small(choose: Choose) -> None:
    both = (GPU, torch.device("cuda:1"))
    two = {"gpus": 2, "gpu": 10, "cpu": 10}
    assert choose(BILLION, **two).devices == (GPU,)
    assert choose(7 * BILLION, **two).devices == both
    assert choose(7 * BILLION, **two, quantize="nf4").devices == (GPU,)
    with pytest.raises(OutOfMemoryError, match=r"cuda:0 has 10\.0 GB free") as caught:
        choose(7 * BILLION, **two, device="cuda:0")
    assert "--quantize nf4" in caught.value.hint
    with pytest.raises(OutOfMemoryError, match=r"cuda:0, cuda:1 has 20\.0 GB free"):
        choose(70 * BILLION, **two, quantize="nf4")


def test_what_does_not_fit_stays_in_main_memory(choose: Choose) -> None:
    """14 GB of weights, 1 GB of slots and headroom."""
    assert choose(7 * BILLION, 1, 20, 20).room == ()
    small = choose(7 * BILLION, 1, 8, 20)
    assert 7 * BILLION < sum(small.room) < 8 * BILLION
    assert small.devices == (GPU,)
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
            choose(7 * BILLION, 1, gpu, cpu, **given)


@pytest.mark.parametrize(
    ("quantize", "dtype", "parameters", "expected"),
    [
        ("auto", "auto", BILLION, "none"),
        ("auto", "auto", 2 * BILLION, "nf4"),
        ("auto", "float32", 2 * BILLION, "none"),
        ("int8", "auto", 1000, "int8"),
        ("none", "auto", 70 * BILLION, "none"),
    ],
)
def test_choice_of_quantisation(quantize: Any, dtype: Any, parameters: int, expected: str) -> None:
    settings = Settings(quantize=quantize, dtype=dtype)
    assert choices.choose_quantization(settings, StoredWeights(parameters, "F16", 0), None) == expected


@pytest.mark.parametrize(
    ("stored", "parameters", "device", "quantization", "expected"),
    [
        ("F32", BILLION, CPU, "none", "float32"),
        ("BF16", BILLION, CPU, "none", "float32"),
        ("F16", 7 * BILLION, CPU, "none", "bfloat16"),
        ("F16", BILLION, GPU, "none", "float16"),
        ("F32", BILLION, GPU, "none", "float32"),
        ("F32", BILLION, GPU, "nf4", "bfloat16"),
        ("F16", 7 * BILLION, GPU, "nf4", "float16"),
        ("F16", 7 * BILLION, CPU, "nf4", "bfloat16"),
    ],
)
def test_choice_of_precision(
    stored: str, parameters: int, device: torch.device, quantization: str, expected: str
) -> None:
    weights = StoredWeights(parameters, stored, 0)
    assert choices.choose_dtype(Settings(), weights, device, quantization) == expected
    assert choices.choose_dtype(Settings(dtype="float16"), weights, device, quantization) == "float16"


def test_precision_we_cannot_load() -> None:
    with pytest.raises(ModelError, match="F8_E4M3"):
        choices.choose_dtype(Settings(), StoredWeights(1000, "F8_E4M3", 0), CPU, "none")


def test_float64_cannot_be_quantised() -> None:
    with pytest.raises(UsageError, match="float64"):
        choices.choose_quantization(
            Settings(quantize="nf4", dtype="float64"), StoredWeights(1000, "F32", 0), None
        )


def test_choice_of_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert choices.choose_device("auto") == CPU
    with pytest.raises(UsageError, match=r"--device 'cuda' is not here\. One of: auto, cpu\."):
        choices.choose_device("cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choices.choose_device("auto") == GPU
    assert choices.choose_device("cuda") == GPU
    assert choices.choose_device("cuda:1") == torch.device("cuda:1")
    assert choices.choose_device("cpu") == CPU
    for absent in ("cuda:2", "tpu", ""):
        with pytest.raises(UsageError, match="is not here"):
            choices.choose_device(absent)
