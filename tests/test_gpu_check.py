"""`tools/stress/gpu_check.py`, as far as a machine without a GPU can show it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]


@pytest.fixture
def gpu_check(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "stress"))
    import gpu_check

    return gpu_check


def test_without_a_gpu_it_says_so(
    gpu_check: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err


@pytest.mark.sweep
@pytest.mark.parametrize(
    "stages",
    [
        "exact,tests",
        "decode",
        "four_bits",
        "small_shapes",
        "rows,stock,compiled,prompt,process,paper,sampled,command",
        "slots_in_bytes",
    ],
)
def test_on_a_cpu_it_goes_through_its_stages(
    gpu_check: Any, capsys: pytest.CaptureFixture[str], stages: str, tmp_path: Path
) -> None:
    """With a tiny shape, under Triton's interpreter: each stage prints a line, and figures are kept."""
    pytest.importorskip("triton", reason="Triton is not installed: it has no wheel for this system")
    file = tmp_path / "figures.json"
    assert gpu_check.main(["--device", "cpu", "--stages", stages, "--json", str(file)]) == 0
    said = capsys.readouterr().out.splitlines()
    for stage in ("about", *stages.split(",")):
        assert any(line.startswith(f"{stage} (") for line in said), stage
    assert json.loads(file.read_text())["failed"] == []


def test_a_stage_that_it_does_not_have(gpu_check: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--device", "cpu", "--stages", "exact,fastest"]) == 2
    assert "fastest" in capsys.readouterr().err


@pytest.mark.sweep
def test_what_fails_is_told(
    gpu_check: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A test file that is not there: the stage says what pytest said, and the others go on."""
    pytest.importorskip("triton", reason="Triton is not installed: it has no wheel for this system")
    import gpu_stages

    monkeypatch.setattr(gpu_stages, "TESTS", ("tests/no_such_file.py",))
    monkeypatch.setattr(gpu_stages, "PROCESSES", 1)
    assert gpu_check.main(["--device", "cpu", "--stages", "tests,prompt"]) == 1
    said = capsys.readouterr().out
    assert "no tests ran" in said
    assert said.splitlines()[-1] == "failed: tests"
    assert "prompt (" in said
