"""Every reader fed with inputs made of valid ones; `tools/stress/fuzz.py` does it for minutes."""

import subprocess
import sys
from pathlib import Path

import pytest
from sweep import sweep

TOOL = Path(__file__).parents[1] / "tools" / "stress" / "fuzz.py"


RUN = f"""
import runpy, sys
sys.argv[0], sys.path[0] = {str(TOOL)!r}, {str(TOOL.parent)!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""

pytestmark = pytest.mark.usefixtures("forked")


def fuzz(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("inputs", [400, *sweep(4000)])
def test_every_reader_takes_or_refuses(tmp_path: Path, inputs: int) -> None:
    done = fuzz(tmp_path, "--inputs", inputs)
    assert done.returncode == 0, done.stderr
    table = {line[:15].strip(): line[15:].split() for line in done.stdout.splitlines()[1:]}
    assert int(table["all"][0].replace(",", "")) >= inputs - 10
    assert {
        "scripts",
        "configuration",
        "imports",
        "weights",
        "saved caches",
        "databases",
        "packed headers",
        "packed weights",
        "gguf files",
        "ollama stores",
    } <= table.keys()
    assert list(tmp_path.iterdir()) == [], "nothing is kept where nothing was wrong"


BROKEN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import fuzz
from fuzzing.reader import Reader
silent = Reader("silent", [b"abc"], lambda raw: int("x"), refuses=ValueError)
assert fuzz.fuzz([silent], 3, "1", Path.cwd())
broken = Reader("broken", [b"abc"], lambda raw: 1 / 0 if b"c" in raw else None)
assert not fuzz.fuzz([broken], 100, "1", Path.cwd())
"""


def test_a_violation_is_told_and_kept(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BROKEN, str(TOOL.parent)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (kept,) = tmp_path.iterdir()
    assert kept.name == "fuzz-broken.input"
    assert b"c" in kept.read_bytes()
    assert "ZeroDivisionError" in done.stderr
    assert "of seed 1" in done.stderr
