"""`gpu_check.py` and `compare_runs.py`, as far as a machine without a GPU can show it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from sweep import sweep

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


@pytest.mark.parametrize(
    "stages",
    ["exact", *sweep("tests,products,decode,four_bits,small_shapes,rows,stock,prompt,process,paper")],
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
    monkeypatch.setattr(gpu_check, "TESTS", ("tests/no_such_file.py",))
    monkeypatch.setattr(gpu_check, "PROCESSES", 1)
    assert gpu_check.main(["--device", "cpu", "--stages", "tests,products"]) == 1
    said = capsys.readouterr().out
    assert "no tests ran" in said
    assert said.splitlines()[-1] == "failed: tests"
    assert "products (" in said


def compare(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "stress" / "compare_runs.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=250)


def test_what_is_no_checkout_is_said(tmp_path: Path) -> None:
    done = compare(tmp_path, ROOT)
    assert done.returncode == 2
    assert f"{tmp_path} holds no h2o_chat/__main__.py" in done.stderr


@pytest.mark.sweep
def test_two_checkouts_are_timed_in_turn(tmp_path: Path) -> None:
    """The second one is another folder, and it is its code that runs."""
    other = tmp_path / "other"
    (other / "h2o_chat").mkdir(parents=True)
    program = (
        'import time\nfor _ in range(4):\n  time.sleep(0.3)\n  print(\'{"event": "token"}\', flush=True)\n'
    )
    (other / "h2o_chat" / "__init__.py").touch()
    (other / "h2o_chat" / "__main__.py").write_text(program)
    done = compare(ROOT, other, "--rounds", 2, "--max-tokens", 4)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    before, now = (found[name]["token_ms"] for name in ("before", "now"))
    assert len(before) == len(now) == 2
    # How long a token of either takes depends on what else runs here; but that one sleeps before each.
    assert min(now) > 250
    assert found["before_by_now"] == pytest.approx(sum(a / b for a, b in zip(before, now, strict=True)) / 2)
    done = compare(other, other, "--max-tokens", 5)
    assert done.returncode == 1
    assert "exit code 0 after 4 of 5 tokens" in done.stderr


def test_starts_are_compared_by_processor_time(tmp_path: Path) -> None:
    """Not by what a process waits."""
    bodies = {"computes": "sum(range(10_000_000))", "waits": "import time; time.sleep(0.3)"}
    for name, body in bodies.items():
        (tmp_path / name / "h2o_chat").mkdir(parents=True)
        (tmp_path / name / "h2o_chat" / "__init__.py").touch()
        program = f'{body}\nprint(\'{{"event": "token"}}\')'
        (tmp_path / name / "h2o_chat" / "__main__.py").write_text(program)
    done = compare(tmp_path / "computes", tmp_path / "waits", "--rounds", 2, "--start")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert min(found["before"]["start_ms"]) > max(found["now"]["start_ms"])
    assert "| checkout | ms of processor time, median |" in done.stdout
