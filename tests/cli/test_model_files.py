"""Files of a model that break what reads them: the model's fault (exit 3), all events, in few words."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from here import h2o_here
from program import Program

from h2o_chat.base.errors import ExitCode
from h2o_chat.events.events import End, Error
from h2o_chat.models.resolve import BUNDLED

PANICS = "(a+)+$|(a|aa)+b"
"""A regular expression at which the tokenizer's library gives up, in a panic of Rust ..."""
ON = "a" * 44 + "c"
"""... on this text."""
SHORT = ("--max-tokens", "3", "--budget", "64", "--seed", "1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the bundled model."""
    source = next(one for one in BUNDLED if one.is_dir())
    return Path(shutil.copytree(source, tmp_path / "copy"))


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def panicking(folder: Path) -> Path:
    """The same model, whose tokenizer panics on some text."""
    path = folder / "tokenizer.json"
    own = json.loads(path.read_text())["pre_tokenizer"]
    split = {"type": "Split", "pattern": {"Regex": PANICS}, "behavior": "Isolated", "invert": False}
    change(path, pre_tokenizer={"type": "Sequence", "pretokenizers": [split, own]})
    return folder


def test_a_tokenizer_that_panics(h2o: Program, folder: Path) -> None:
    panicking(folder)
    environment = os.environ | {"RUST_BACKTRACE": "1"}
    done = h2o("run", ON, "-m", folder, *SHORT, env=environment)
    assert done.code == ExitCode.MODEL, done.err
    assert "The model's tokenizer fails on this text: Onig: Regex search error" in done.err
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) < 12, done.err
    assert h2o_here("run", "Hi", "-m", folder, *SHORT).code == ExitCode.OK

    done = h2o_here("run", ON, "-m", folder, *SHORT, "--json")
    assert done.code == ExitCode.MODEL
    *_, error, end = done.events
    assert isinstance(error, Error)
    assert error.code == "model"
    assert isinstance(end, End)


def test_a_tokenizer_that_panics_while_it_spells(folder: Path) -> None:
    """In the middle of an answer: a decoder with such an expression, and tokens that all read like that."""
    letters = {"type": "Replace", "pattern": {"Regex": "[^c]|$"}, "content": "a" * 44 + "c"}
    panics = {"type": "Replace", "pattern": {"Regex": PANICS}, "content": "x"}
    own = json.loads((folder / "tokenizer.json").read_text())["decoder"]
    decoders = [own, {"type": "Fuse"}, letters, panics]
    change(folder / "tokenizer.json", decoder={"type": "Sequence", "decoders": decoders})
    done = h2o_here("run", "Hi", "-m", folder, *SHORT, "--json")
    assert done.code == ExitCode.MODEL, done.err
    assert "Traceback" not in done.err
    assert isinstance(done.events[-1], End)


@pytest.mark.parametrize("wrong", [[[1, 2]], {"a": 1}, "end", [None, "a"], 1.5, True, [{}]], ids=str)
def test_an_end_that_is_no_token(folder: Path, wrong: Any) -> None:
    change(folder / "generation_config.json", eos_token_id=wrong)
    done = h2o_here("run", "Hi", "-m", folder, *SHORT, "--json")
    assert done.code == ExitCode.MODEL, done.err
    assert "Traceback" not in done.err
    assert isinstance(done.events[-2], Error)
    assert isinstance(done.events[-1], End)


@pytest.mark.parametrize("window", [10**30, -5, 0.5, "many"], ids=str)
def test_a_window_that_is_none(folder: Path, window: Any) -> None:
    change(folder / "config.json", max_position_embeddings=window)
    done = h2o_here("run", "Hi", "-m", folder, *SHORT)
    assert done.code == ExitCode.MODEL, done.err
    assert "Traceback" not in done.err


def test_twelve_megabytes() -> None:
    """Blanks are nothing to say, and a text of that length would be read for hours."""
    blanks, text = " " * 12_000_000, "one two " * 1_500_000
    for piped, said in ((blanks, "nothing to say"), (text, "12,000,000 characters is too long")):
        done = h2o_here("run", piped=piped)
        assert done.code == ExitCode.USAGE
        assert said in done.err


def test_a_key_that_a_terminal_would_obey(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The tokenizers' library prints keys that it does not know, raw, on stdout."""
    change(folder / "tokenizer_config.json", added_tokens_decoder={"0": {"content": "<x>", "\x1b[2J": 1}})
    done = h2o_here("run", "Hi", "-m", folder, *SHORT)
    assert done.code == ExitCode.MODEL, done.err
    assert "\x1b" not in done.out + done.err + "".join(capfd.readouterr())
    assert r"'\x1b[2J' can be no key" in done.err
