"""Names of strangers (folders, cached models, aliases) on a terminal and in notes: shown, never obeyed."""

import json
import os
import shutil
from pathlib import Path

import pytest
from here import h2o_here
from program import Ended, h2o

from h2o_chat.base.errors import ExitCode, name_of
from h2o_chat.native import library

NAME = b"\x1b[31mred\xc2\x9b2J\nh2o-chat: forged"
SPELT = r"\x1b[31mred\x9b2J\nh2o-chat: forged"


def obeyed(text: str) -> list[str]:
    return [one for one in text if (one < " " and one != "\n") or "\x7f" <= one < "\xa0"]


@pytest.fixture
def hostile(copied: Path) -> Path:
    """The bundled model in a folder whose name a terminal would obey."""
    return copied.rename(os.fsdecode(bytes(copied.parent) + b"/" + NAME))


def harmless(done: Ended) -> str:
    """Returns the text that was printed; in it nothing is obeyed and no line is forged."""
    said = done.out + done.err
    assert "Traceback" not in said
    assert not obeyed(said), ascii(said)
    assert "\nh2o-chat: forged" not in said
    return said


def test_a_folder_of_a_model_named_with_an_escape_sequence(hostile: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    flags = ("--max-tokens", "2", "--seed", "1", "--budget", "64")
    done = h2o_here("run", "Hi", "-m", hostile, *flags, "--save", "--data", data)
    assert SPELT in harmless(done)
    again = h2o_here("run", "Hi", "-m", hostile, *flags, "--resume", "last", "--data", data, "--json")
    assert json.loads(again.out.splitlines()[0])["model"] == SPELT
    assert SPELT in harmless(h2o_here("sessions", "list", "--data", data))
    for command in ("info", "pull"):
        done = h2o_here("models", command, hostile)
        assert SPELT in harmless(done)
    for code in (ExitCode.OK, ExitCode.MODEL):  # its packed weights; then there is nothing to remove
        if code == ExitCode.OK and library.why_not():
            continue
        assert SPELT in harmless(h2o_here("models", "rm", hostile, "--yes", ends=code))


def test_a_name_that_is_not_utf_8(hostile: Path) -> None:
    """No tokenizer is loaded from there; it is said."""
    folder = hostile.rename(Path(os.fsdecode(bytes(hostile) + b"\xff")))
    for call, more in ((h2o, ()), (h2o_here, ("--json",))):
        done = call("run", "Hi", "-m", folder, *more, ends=ExitCode.MODEL)
        assert SPELT + r"\udcff" in harmless(done).replace("\\\\", "\\")
    assert h2o_here("models", "info", folder).out.startswith(SPELT + r"\udcff")


def test_cached_models_and_aliases_named_so(tmp_path: Path, file: Path) -> None:
    (tmp_path / "hub" / os.fsdecode(b"models--org--" + NAME)).mkdir(parents=True)
    file.write_text('[aliases]\n"\\u001b[31mred" = "org/\\u009bname"\n')
    done = h2o("models", env=os.environ | {"HF_HUB_CACHE": str(tmp_path / "hub")})
    said = harmless(done)
    assert f"org/{SPELT}" in said
    assert r"\x1b[31mred  org/\x9bname" in said


def test_what_a_name_becomes() -> None:
    assert name_of(Path("/a\tb/\u202ec")) == r"/a\tb/\u202ec"
    assert name_of("漢字 é") == "漢字 é"


def test_two_folders_of_one_name_are_two_models(small: Path, copied: Path, tmp_path: Path) -> None:
    """A conversation knows its model by the folder's last name; another's tokens are refused in words."""
    other = shutil.copytree(small, tmp_path / "elsewhere" / copied.name)
    data, flags = tmp_path / "data", ("--max-tokens", "3", "--budget", "64")
    said = "My name is Flora and I live in Paris."
    h2o_here("run", said, "-m", copied, *flags, "--save", "--data", data)
    done = h2o_here("run", "Hi", "-m", other, *flags, "--resume", "last", "--data", data, ends=ExitCode.USAGE)
    assert "it was held with another model of that name" in done.err
