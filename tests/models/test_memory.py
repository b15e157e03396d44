"""The estimate of a model's memory, and the error for one that does not fit."""

from pathlib import Path
from typing import Any

import pytest
from gguf_files import write
from gguf_tiny import folder_of

from h2o_chat.base.errors import ExitCode, OutOfMemoryError
from h2o_chat.models.fits import Need, Sizes, auto_budget, estimate, require
from h2o_chat.models.model_files import StoredWeights

LLAMA_7B = Sizes(layers=32, hidden=4096, heads=32, kv_heads=32, head_size=128, vocabulary=32_000, tied=False)
WEIGHTS = StoredWeights(6_738_415_616, "F16", 13_476_831_232)
GB = 10**9


def needs(budget: int = 512) -> dict[str, Need]:
    return {
        how: estimate(LLAMA_7B, WEIGHTS, how, 2, budget, as_stored=False) for how in ("none", "int8", "nf4")
    }


def test_weights() -> None:
    assert needs()["none"].weights == 13_476_831_232
    assert needs()["int8"].weights == pytest.approx(7.0e9, rel=0.01)
    assert needs()["nf4"].weights == pytest.approx(4.17e9, rel=0.01)
    as_stored = estimate(LLAMA_7B, StoredWeights(4 * GB, "U8", 4 * GB), "nf4", 2, 512, as_stored=True)
    assert as_stored.weights == 4 * GB


def test_slots() -> None:
    """512 KiB a token, as is known of Llama 7B in half precision; and their bookkeeping."""
    slots = needs()["none"].slots
    assert slots > 513 * 512 * 2**10
    assert slots == pytest.approx(513 * 512 * 2**10, rel=0.065)
    assert needs(1024)["none"].slots == pytest.approx(2 * slots, rel=0.01)


def refusal(free: float, chosen: str, budget: int = 512) -> str:
    with pytest.raises(OutOfMemoryError) as caught:
        require("llama", "cpu", int(free * GB), chosen, needs(budget), budget)
    assert caught.value.exit_code == ExitCode.MEMORY
    assert f"as {chosen}" in caught.value.message
    assert f"{free:.1f} GB free" in caught.value.message
    return caught.value.hint


def test_what_fits_is_let_through() -> None:
    require("llama", "cpu", 15 * GB, "none", needs(), 512)
    require("llama", "cpu", 7 * GB, "nf4", needs(), 512)


def test_what_would_fit() -> None:
    assert refusal(10, "none") == "What would fit: --quantize nf4 (6.1 GB) or --quantize int8 (8.9 GB)."
    assert refusal(7, "none") == "What would fit: --quantize nf4 (6.1 GB)."
    assert refusal(7, "nf4", 8192).startswith("What would fit: --quantize nf4 --budget 2")
    assert refusal(2.5, "nf4") == "A smaller model may fit: h2o-chat models list --hub"


@pytest.mark.parametrize(
    ("intermediate", "window", "gib", "budget"),
    [
        (1024, 4096, 16, 1024),
        (4096, 4096, 16, 2048),
        (4096, 1500, 16, 1024),
        (4096, 4096, 0.001, 512),
        (32, 4096, 16, 512),
    ],
)
@pytest.mark.parametrize("as_file", [True, False])
def test_auto_budget(
    intermediate: int, window: int, gib: float, budget: int, as_file: bool, tmp_path: Path
) -> None:
    """One KV head of 16 numbers: some 180 bytes a slot, beside 1 to 4 MB of weights."""
    sizes = {"num_hidden_layers": 1, "num_key_value_heads": 1, "head_dim": 16, "hidden_size": 256}
    folder = folder_of(
        "llama", tmp_path / "model", **sizes, intermediate_size=intermediate, max_position_embeddings=window
    )
    model = write(folder, tmp_path / "model.gguf", "Q8_0") if as_file else folder
    assert auto_budget(model, int(gib * 2**30)) == budget


@pytest.mark.parametrize(("chosen", "budget"), [(1, 512), (8, 2048)])
def test_a_token_reads_its_own_experts(chosen: int, budget: int, tmp_path: Path) -> None:
    """Eight experts of .8 million weights each."""
    sizes: dict[str, Any] = {"num_hidden_layers": 1, "num_key_value_heads": 1, "head_dim": 64}
    sizes |= {"num_experts": 8, "num_experts_per_tok": chosen, "hidden_size": 256, "intermediate_size": 1024}
    folder = folder_of("olmoe", tmp_path / "model", **sizes, max_position_embeddings=4096)
    model = write(folder, tmp_path / "model.gguf", "Q8_0")
    assert [auto_budget(one, 2**34) for one in (folder, model)] == [budget, budget]
