"""`tools/gpu_check.py` and `tools/compare_runs.py`, as far as a machine without a GPU can show it."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from sweep import sweep

from h2o_chat.lab import speed

ROOT = Path(__file__).parents[1]


@pytest.fixture
def gpu_check(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import gpu_check

    return gpu_check


def test_without_a_gpu_it_says_so(
    gpu_check: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_check.main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err


@pytest.mark.parametrize(
    "missing", [("hypothesis", "bitsandbytes", "textual"), *sweep(((),), (("bitsandbytes",),))], ids=str
)
def test_on_a_cpu_it_does_the_same(
    gpu_check: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    missing: tuple[str, ...],
) -> None:
    """With few of the tests; what needs a package that is missing is left out, and said."""
    monkeypatch.setattr(gpu_check, "find_spec", lambda name: None if name in missing else find_spec(name))
    monkeypatch.setattr(gpu_check, "TESTS", ("tests/cache/test_exactness.py::test_the_oracle_itself",))
    monkeypatch.setattr(gpu_check, "PROCESSES", 1)
    monkeypatch.setattr(speed, "wait_until_idle", lambda: True)
    assert gpu_check.main(["--device", "cpu"]) == 0
    *shown, last = capsys.readouterr().out.splitlines()
    found = json.loads(last)
    assert (found["device"], found["failed"]) == ("cpu", [])
    assert len(found["left_out"]) == len(missing)
    assert all(any(name in line for line in found["left_out"]) for name in missing)
    assert "hypothesis" in missing or found["tests"]["passed"] == 1
    assert list(found["speed"]) == (["bfloat16"] if "bitsandbytes" in missing else ["bfloat16", "nf4"])
    for label, rows in found["speed"].items():
        ours = [f"transformers {label}, {policy}" for policy in ("h2o", "window")]
        assert [row["contestant"] for row in rows] == [f"stock {label}", *ours]
        assert all(row["dtype"] == "bfloat16" and row["token_ms"] > 0 for row in rows)
        assert any(line.startswith(f"| {label} | transformers {label}, window | 40 | ") for line in shown)


@pytest.mark.sweep
def test_what_fails_is_told(
    gpu_check: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A test file that is not there, and a folder that is no model."""
    monkeypatch.setattr(gpu_check, "TESTS", ("tests/no_such_file.py",))
    monkeypatch.setattr(gpu_check, "PROCESSES", 1)
    assert gpu_check.main(["--device", "cpu", "--model", str(tmp_path)]) == 1
    said = capsys.readouterr()
    failed = json.loads(said.out.splitlines()[-1])["failed"]
    assert [line.partition(":")[0] for line in failed] == ["tests", "speed in bfloat16", "speed in nf4"]
    assert "no tests ran" in said.err


def compare(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "compare_runs.py"), *map(str, arguments)]
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
