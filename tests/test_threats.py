"""docs/THREATS.md names tests that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "THREATS.md").read_text("utf-8")


def test_every_line_names_a_test_that_exists() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| harm")]
    assert len(lines) > 30
    wrong = []
    for line in lines:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", line)
        if not named or any(name not in functions(ROOT / file) for file, name in named):
            wrong.append(line)
    assert wrong == []


def functions(file: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.parse(file.read_text("utf-8")).body if isinstance(node, kinds)}
