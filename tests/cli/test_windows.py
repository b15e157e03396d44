"""A conversation without what Windows lacks. It shows that nothing of it is asked for, not more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from h2o_chat.chat.templates.template_process import LONGEST_S

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="takes away what only POSIX has")

PROGRAM = Path(__file__).with_name("without_posix.py")


def run(*arguments: object) -> str:
    command = [sys.executable, str(PROGRAM), "run", *map(str, arguments), "--max-tokens", "8"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_conversation_is_held_stored_and_gone_on_with(tmp_path: Path) -> None:
    """Its weights are packed too, where there is a native step: nothing is in the cache."""
    data = ("--data", tmp_path)
    assert "Ada" in run("My name is Ada. What is my name?", "--save", *data)
    assert run("And what is my name?", "--resume", "last", *data).strip()
    assert list((tmp_path).rglob("*.db*"))


def test_a_template_that_does_not_end_is_ended(tmp_path: Path) -> None:
    """Windows cannot count what a process computes: a clock ends it."""
    program = (
        "import sys; from h2o_chat.chat.templates import template_process as process;"
        " sys.platform = 'win32'; process.LONGEST_S = 0.3; process.main()"
    )
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    question = json.dumps({"template": endless, "values": {"messages": []}}) + "\n"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=question.encode(),
        env=os.environ | {"PYTHONFAULTHANDLER": ""},
        capture_output=True,
        timeout=20 * LONGEST_S,
    )
    assert (done.returncode, done.stdout) == (1, b"")
