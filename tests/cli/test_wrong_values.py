"""Wrong values and other faults on the command line, in words that say what to do."""

import json
import os
import re
from pathlib import Path

import pytest
from here import h2o_here
from program import Program

from h2o_chat.base.errors import ExitCode


def words(text: str) -> str:
    """What a box says, without its lines and breaks."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "hi", "--policy", "foo"), "'--policy': 'foo' is not one of 'h2o'"),
        (("--policy", "foo"), "'--policy': 'foo' is not one of 'h2o'"),
        (("run", "hi", "--budget", "1.5"), "'1.5' is not a whole number."),
        (("run", "hi", "--top-p", "x"), "'x' is not a number."),
        (("sessions", "list", "-n", "0"), "0 is out of range: at least 1."),
        (("bench", "speed", "--prompt", "1"), "1 is out of range: at least 2."),
    ],
)
def test_a_wrong_value_is_named(arguments: tuple[str, ...], said: str) -> None:
    done = h2o_here(*arguments)
    assert done.code == ExitCode.USAGE
    assert said in words(done.err)
    assert "Value error" not in done.err
    assert "Input should" not in done.err


def test_a_wrong_value_in_the_file_is_named(h2o: Program, tmp_path: Path) -> None:
    folder = tmp_path / "h2o-chat"
    folder.mkdir()
    (folder / "config.toml").write_text('[defaults]\npolicy = "foo"\n')
    done = h2o("run", "hi", env=os.environ | {"XDG_CONFIG_HOME": str(tmp_path)})
    assert done.code == ExitCode.USAGE
    assert "[defaults] policy 'foo' is not known." in done.err
    assert "Value error" not in done.err


def test_imported_conversations_do_not_have_no_tokens(tmp_path: Path) -> None:
    file = tmp_path / "said.json"
    said = [{"role": "user", "content": "I am Flora."}, {"role": "assistant", "content": "Hello, Flora."}]
    file.write_text(json.dumps({"messages": said}))
    data = ("--data", tmp_path / "data")
    imported = h2o_here("sessions", "import", file, *data).out.strip()
    h2o_here("run", "hi", "--save", "--max-tokens", "3", *data)
    listed = json.loads(h2o_here("sessions", "list", "--json", *data).out)
    tokens = {one["id"] == imported: one["tokens"] for one in listed}
    assert tokens[True] is None
    assert tokens[False] > 3
    rows = h2o_here("sessions", "list", *data).out.splitlines()
    (row,) = [row for row in rows if imported in row]
    assert row.split()[4] == "-"


def test_what_cannot_be_saved_does_not_end_well() -> None:
    done = h2o_here("run", "hi", "--save", "--max-tokens", "3", "--data", "/dev/null")
    assert done.code != ExitCode.OK
    assert "Nothing of this conversation is stored" in done.err
