"""Files of a model that break what reads them: the model's fault (exit 3), all events, in few words."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from here import h2o_here
from program import h2o

from h2o_chat.base.errors import ExitCode
from h2o_chat.events.events import End, Error

PANICS = "(a+)+$|(a|aa)+b"
"""A regular expression at which the tokenizer's library gives up, in a panic of Rust ..."""
ON = "a" * 44 + "c"  # ... on this text
ENDS: tuple[Any, ...] = ([[1, 2]], {"a": 1}, "end", [None, "a"], 1.5, True, [{}])
WINDOWS: tuple[Any, ...] = (10**30, -5, 0.5, "many")
SHORT = ("--max-tokens", "3", "--budget", "64", "--seed", "1")


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def panicking(copied: Path) -> Path:
    """Gives it a tokenizer that panics on some text."""
    path = copied / "tokenizer.json"
    own = json.loads(path.read_text())["pre_tokenizer"]
    split = {"type": "Split", "pattern": {"Regex": PANICS}, "behavior": "Isolated", "invert": False}
    change(path, pre_tokenizer={"type": "Sequence", "pretokenizers": [split, own]})
    return copied


def test_a_tokenizer_that_panics(copied: Path) -> None:
    panicking(copied)
    environment = os.environ | {"RUST_BACKTRACE": "1"}
    done = h2o("run", ON, "-m", copied, *SHORT, env=environment, ends=ExitCode.MODEL)
    assert "The model's tokenizer fails on this text: Onig: Regex search error" in done.err
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) < 12, done.err
    h2o_here("run", "Hi", "-m", copied, *SHORT)

    done = h2o_here("run", ON, "-m", copied, *SHORT, "--json", ends=ExitCode.MODEL)
    assert [error.code for error in done.of(Error)] == ["model"]
    assert isinstance(done.events[-1], End)


def test_a_tokenizer_that_panics_while_it_spells(copied: Path) -> None:
    """In the middle of an answer: a decoder with such an expression, and tokens that all read like that."""
    letters = {"type": "Replace", "pattern": {"Regex": "[^c]|$"}, "content": "a" * 44 + "c"}
    panics = {"type": "Replace", "pattern": {"Regex": PANICS}, "content": "x"}
    own = json.loads((copied / "tokenizer.json").read_text())["decoder"]
    decoders = [own, {"type": "Fuse"}, letters, panics]
    change(copied / "tokenizer.json", decoder={"type": "Sequence", "decoders": decoders})
    done = h2o_here("run", "Hi", "-m", copied, *SHORT, "--json", ends=ExitCode.MODEL)
    assert "Traceback" not in done.err
    assert isinstance(done.events[-1], End)


@pytest.mark.parametrize(
    ("file", "key", "wrong"),
    [
        *(("generation_config.json", "eos_token_id", wrong) for wrong in ENDS),
        *(("config.json", "max_position_embeddings", wrong) for wrong in WINDOWS),
    ],
    ids=str,
)
def test_a_value_that_cannot_be(copied: Path, file: str, key: str, wrong: Any) -> None:
    change(copied / file, **{key: wrong})
    done = h2o_here("run", "Hi", "-m", copied, *SHORT, "--json", ends=ExitCode.MODEL)
    assert "Traceback" not in done.err
    assert isinstance(done.events[-2], Error)
    assert isinstance(done.events[-1], End)


def test_a_key_that_a_terminal_would_obey(copied: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The tokenizers' library prints keys that it does not know, raw, on stdout."""
    change(copied / "tokenizer_config.json", added_tokens_decoder={"0": {"content": "<x>", "\x1b[2J": 1}})
    done = h2o_here("run", "Hi", "-m", copied, *SHORT, ends=ExitCode.MODEL)
    assert "\x1b" not in done.out + done.err + "".join(capfd.readouterr())
    assert r"'\x1b[2J' can be no key" in done.err
