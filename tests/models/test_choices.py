"""On which device, in which precision, packed how: what is chosen, and what is refused."""

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


def test_all_gpus_where_one_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision: there are no two GPUs to try it on."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(choices, "free_bytes", lambda device: 10 * BILLION)
    config = transformers.LlamaConfig()

    def choose(parameters: int, device: str, quantization: Any) -> list[torch.device]:
        settings = Settings(device=device, quantize=quantization, dtype="float16")
        weights = StoredWeights(parameters, "F16", 2 * parameters)
        return [*choices.choose("m", settings, config, weights).devices]

    both = [GPU, torch.device("cuda:1")]
    assert choose(BILLION, "auto", "none") == [GPU]
    assert choose(7 * BILLION, "auto", "none") == both
    assert choose(7 * BILLION, "auto", "nf4") == [GPU]
    with pytest.raises(OutOfMemoryError, match=r"cuda:0 has 10\.0 GB free") as caught:
        choose(7 * BILLION, "cuda:0", "none")
    assert "--quantize nf4" in caught.value.hint
    with pytest.raises(OutOfMemoryError, match=r"cuda:0, cuda:1 has 20\.0 GB free"):
        choose(70 * BILLION, "auto", "nf4")


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
