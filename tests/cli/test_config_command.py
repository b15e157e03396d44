"""`h2o-chat config`, which shows and changes what `config.toml` says."""

import json
import os
import resource
import stat
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest
from here import h2o_here
from hypothesis import given
from hypothesis import strategies as st
from program import h2o
from typer.main import get_command

from h2o_chat.base import precedence
from h2o_chat.base.config import SCREEN_TOKENS, Sampling, config_file
from h2o_chat.base.errors import ExitCode
from h2o_chat.cli import config_command
from h2o_chat.cli.cli import app


def test_path(file: Path) -> None:
    assert h2o_here("config", "path").out == f"{file}\n"


def test_show_says_where_each_value_comes_from(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("[defaults]\nbudget = 64\ntop_p = 1\n")
    monkeypatch.setenv("H2O_CHAT_TOP_P", "0.5")
    monkeypatch.setenv("H2O_CHAT_SYSTEM", "red\x1b[31m\x9b31m")
    shown = json.loads(h2o_here("config", "show", "--json").out)
    assert shown["file"] == str(file)
    by_name = {one["name"]: (one["value"], one["source"]) for one in shown["settings"]}
    assert by_name["budget"] == (64, "config.toml")
    assert by_name["top_p"] == (0.5, "environment")
    assert by_name["policy"] == ("h2o", "default")
    assert by_name.keys() == set(precedence.NAMES)
    table = h2o_here("config", "show").out
    rows = {line.split()[0]: line.split()[1:] for line in table.splitlines()}
    assert rows["budget"] == ["config.toml", "64"]
    assert rows["top_p"] == ["H2O_CHAT_TOP_P", "0.5"]
    assert "\x1b" not in table


def test_an_answer_on_the_screen_ends_too(file: Path) -> None:
    """A greedy answer may repeat itself for ever, and push all else out of the memory."""
    chat = get_command(app).make_context("h2o-chat", [])
    assert chat.params["max_tokens"] == SCREEN_TOKENS == 8192
    table = h2o_here("config", "show").out
    (row,) = [line for line in table.splitlines() if line.startswith("max_tokens")]
    assert row.split()[1:] == f"default {Sampling().max_tokens} (on the screen: {SCREEN_TOKENS})".split()
    assert "\x9b" not in table


BEFORE = """\
# Mine.
[defaults]  # for every day
budget = 64   # small
stop = [
  "a",  # one
]

# Short names
[aliases]
mine = "org/name"
"""


def test_set_keeps_comments_and_everything_else(file: Path) -> None:
    file.write_text(BEFORE)
    done = h2o_here("config", "set", "budget", 128)
    assert (done.code, done.out) == (ExitCode.OK, "budget = 128\n")
    assert file.read_text() == BEFORE.replace("64", "128")
    h2o_here("config", "set", "--", "--top-p", "0.5")
    assert file.read_text() == BEFORE.replace("64", "128").replace("\n]\n", "\n]\ntop_p = 0.5\n")
    h2o_here("config", "unset", "top-p")
    h2o_here("config", "set", "budget", "64")
    assert file.read_text() == BEFORE


def test_set_makes_the_file_and_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "not" / "yet"))
    h2o_here("config", "set", "stop", '["a", "b"]')
    assert config_file().read_text() == '[defaults]\nstop = ["a", "b"]\n'
    assert stat.S_IMODE(config_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(config_file().parent.stat().st_mode) == 0o700


def test_a_file_that_others_could_read_becomes_private(file: Path) -> None:
    file.write_text("")
    file.chmod(0o644)
    h2o_here("config", "set", "seed", "1")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "kept-elsewhere.toml"
    real.write_text("# mine\n")
    file.symlink_to(real)
    h2o_here("config", "set", "seed", "1")
    assert file.is_symlink()
    assert real.read_text() == "# mine\n\n[defaults]\nseed = 1\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["budget", "0"], "budget is 0"),
        (["seed", "-1"], "seed is -1"),
        (["bugdet", "5"], "Did you mean budget?"),
        (["ignore-eos", "perhaps"], "true or false"),
    ],
)
def test_set_checks_first(file: Path, arguments: list[str], said: str) -> None:
    file.write_text(BEFORE)
    done = h2o_here("config", "set", *arguments, ends=ExitCode.USAGE)
    assert said in done.err
    assert file.read_text() == BEFORE


def test_set_says_what_comes_before_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("H2O_CHAT_BUDGET", "7")
    assert "H2O_CHAT_BUDGET is set too" in h2o_here("config", "set", "budget", 8).err


def test_unset_mends_what_is_not_known(file: Path) -> None:
    file.write_text("[defaults]\nbugdet = 5 # oh\nseed = 1\n")
    h2o_here("config", "unset", "bugdet")
    assert file.read_text() == "[defaults]\nseed = 1\n"
    h2o_here("config", "unset", "bugdet", ends=ExitCode.USAGE)
    assert "budget is not set" in h2o_here("config", "unset", "budget").err


@pytest.mark.parametrize(
    "before",
    [
        "defaults.seed = 3\n",
        "defaults = {seed = 3}\n",
        "[defaults]\r\nseed = 3\r\n\r\n[aliases]\r\n",
        "[ 'defaults' ]\nseed = 3 # without an end",
        "\ufeff[defaults]\nseed = 3\n",
    ],
)
def test_other_layouts_can_be_edited(file: Path, before: str) -> None:
    file.write_bytes(before.encode())
    h2o_here("config", "set", "seed", 4)
    h2o_here("config", "set", "budget", 5)
    assert precedence.from_file(file) == {"seed": 4, "budget": 5}
    assert ("\r\n" in before) == (b"\r" in file.read_bytes())
    assert file.read_bytes().count(b"\r\n") in (0, file.read_bytes().count(b"\n"))


@pytest.mark.parametrize("before", ["[defaults.sub]\na = 1\n", "defaults = 3\n", "[defaults\n"])
def test_what_cannot_be_edited_is_left_alone(file: Path, before: str) -> None:
    file.write_text(before)
    for command in (["set", "seed", 4], ["unset", "seed"]):
        if command[0] == "unset" and "sub" in before:
            continue  # there is nothing to take out
        h2o_here("config", *command, ends=ExitCode.USAGE)
    assert file.read_text() == before


def test_the_old_file_or_the_new_one(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever interrupts it before the last step finds the old file, and nothing beside it."""
    file.write_text(BEFORE)

    def interrupted(*_: object) -> None:
        assert file.read_text() == BEFORE
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        config_command.change("seed", 1)
    assert file.read_text() == BEFORE
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_disk_without_room(file: Path) -> None:
    """The real program, in which no file may grow."""
    file.write_text(BEFORE)
    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))
    done = h2o("config", "set", "seed", 1, preexec_fn=full, ends=ExitCode.FAILED)
    assert f"{file} cannot be written" in done.err
    assert file.read_text() == BEFORE
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is read-only, for root too")
def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for home in ("/proc", tmp_path / "file"):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
        done = h2o_here("config", "set", "seed", 1, ends=ExitCode.FAILED)
        assert "cannot be written" in done.err
        h2o_here("config", "show")


LINES = ["# a", "", "[aliases]", "[defaults]", "budget = 1", "  seed = 2 # b", "mine = 'c'", 'stop = ["x"]']


@given(lines=st.lists(st.sampled_from(LINES), max_size=9), ended=st.booleans())
def test_an_edit_changes_one_thing(lines: list[str], ended: bool) -> None:
    """Every TOML file keeps its other values and its other lines, in their order."""
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    if not isinstance(before.get("defaults", {}), dict):
        return
    for value in (7, None):
        if value is None and "budget" not in before.get("defaults", {}):
            continue
        after = config_command._edited(text, "budget", value)
        defaults = {key: one for key, one in before.get("defaults", {}).items() if key != "budget"}
        expected = defaults | ({} if value is None else {"budget": value})
        assert tomllib.loads(after) == before | {"defaults": expected}
        rest = [line for line in lines if line and not line.startswith("budget")]
        kept = iter(after.split("\n"))
        assert all(line in kept for line in rest), "in their order"
