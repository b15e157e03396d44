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
from configured import call, file
from hypothesis import given
from hypothesis import strategies as st
from program import Program
from typer.main import get_command

from h2o_chat.base import precedence
from h2o_chat.base.config import SCREEN_TOKENS, Sampling, config_file
from h2o_chat.base.errors import ExitCode, H2OChatError
from h2o_chat.cli import config_command
from h2o_chat.cli.cli import app

__all__ = ["file"]


def test_path(file: Path) -> None:
    assert call("config", "path").stdout == f"{file}\n"


def test_show_says_where_each_value_comes_from(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("[defaults]\nbudget = 64\ntop_p = 1\n")
    monkeypatch.setenv("H2O_CHAT_TOP_P", "0.5")
    monkeypatch.setenv("H2O_CHAT_SYSTEM", "red\x1b[31m\x9b31m")
    shown = json.loads(call("config", "show", "--json").stdout)
    assert shown["file"] == str(file)
    by_name = {one["name"]: (one["value"], one["source"]) for one in shown["settings"]}
    assert by_name["budget"] == (64, "config.toml")
    assert by_name["top_p"] == (0.5, "environment")
    assert by_name["policy"] == ("h2o", "default")
    assert by_name.keys() == set(precedence.NAMES)
    table = call("config", "show").stdout
    rows = {line.split()[0]: line.split()[1:] for line in table.splitlines()}
    assert rows["budget"] == ["config.toml", "64"]
    assert rows["top_p"] == ["H2O_CHAT_TOP_P", "0.5"]
    assert "\x1b" not in table


def test_an_answer_on_the_screen_ends_too(file: Path) -> None:
    """A greedy answer may repeat itself for ever, and push all else out of the memory."""
    chat = get_command(app).make_context("h2o-chat", [])
    assert chat.params["max_tokens"] == SCREEN_TOKENS == 8192
    table = call("config", "show").stdout
    (row,) = [line for line in table.splitlines() if line.startswith("max_tokens")]
    assert row.split()[1:] == [
        "default",
        f"{Sampling().max_tokens}",
        *f"(on the screen: {SCREEN_TOKENS})".split(),
    ]
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
    done = call("config", "set", "budget", 128)
    assert (done.exit_code, done.stdout) == (ExitCode.OK, "budget = 128\n")
    assert file.read_text() == BEFORE.replace("64", "128")
    assert call("config", "set", "--", "--top-p", "0.5").exit_code == ExitCode.OK
    assert file.read_text() == BEFORE.replace("64", "128").replace("\n]\n", "\n]\ntop_p = 0.5\n")
    assert call("config", "unset", "top-p").exit_code == ExitCode.OK
    assert call("config", "set", "budget", "64").exit_code == ExitCode.OK
    assert file.read_text() == BEFORE


def test_set_makes_the_file_and_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "not" / "yet"))
    assert call("config", "set", "stop", '["a", "b"]').exit_code == ExitCode.OK
    assert config_file().read_text() == '[defaults]\nstop = ["a", "b"]\n'
    assert stat.S_IMODE(config_file().stat().st_mode) == 0o600
    assert stat.S_IMODE(config_file().parent.stat().st_mode) == 0o700


def test_a_file_that_others_could_read_becomes_private(file: Path) -> None:
    file.write_text("")
    file.chmod(0o644)
    assert call("config", "set", "seed", "1").exit_code == ExitCode.OK
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_link_stays_a_link(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "kept-elsewhere.toml"
    real.write_text("# mine\n")
    file.symlink_to(real)
    assert call("config", "set", "seed", "1").exit_code == ExitCode.OK
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
    done = call("config", "set", *arguments)
    assert done.exit_code == ExitCode.USAGE
    assert said in done.stderr
    assert file.read_text() == BEFORE


def test_set_says_what_comes_before_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("H2O_CHAT_BUDGET", "7")
    done = call("config", "set", "budget", 8)
    assert done.exit_code == ExitCode.OK
    assert "H2O_CHAT_BUDGET is set too" in done.stderr


def test_unset_mends_what_is_not_known(file: Path) -> None:
    file.write_text("[defaults]\nbugdet = 5 # oh\nseed = 1\n")
    assert call("config", "unset", "bugdet").exit_code == ExitCode.OK
    assert file.read_text() == "[defaults]\nseed = 1\n"
    again = call("config", "unset", "bugdet")
    assert again.exit_code == ExitCode.USAGE
    absent = call("config", "unset", "budget")
    assert absent.exit_code == ExitCode.OK
    assert "budget is not set" in absent.stderr


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
    assert call("config", "set", "seed", 4).exit_code == ExitCode.OK
    assert call("config", "set", "budget", 5).exit_code == ExitCode.OK
    assert precedence.from_file(file) == {"seed": 4, "budget": 5}
    assert ("\r\n" in before) == (b"\r" in file.read_bytes())
    assert file.read_bytes().count(b"\r\n") in (0, file.read_bytes().count(b"\n"))


@pytest.mark.parametrize("before", ["[defaults.sub]\na = 1\n", "defaults = 3\n", "[defaults\n"])
def test_what_cannot_be_edited_is_left_alone(file: Path, before: str) -> None:
    file.write_text(before)
    for command in (["set", "seed", 4], ["unset", "seed"]):
        if command[0] == "unset" and "sub" in before:
            continue  # there is nothing to take out
        assert call("config", *command).exit_code == ExitCode.USAGE
    assert file.read_text() == before


def test_the_old_file_or_the_new_one(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stops it before the last step leaves the old file, and nothing beside it."""
    file.write_text(BEFORE)

    def stop(*_: object) -> None:
        assert file.read_text() == BEFORE
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(H2OChatError, match="No space left on device"):
        config_command.change("seed", 1)
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        config_command.change("seed", 1)
    assert file.read_text() == BEFORE
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_disk_without_room(h2o: Program, file: Path) -> None:
    """The real program, in which no file may grow."""
    file.write_text(BEFORE)
    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))
    done = h2o("config", "set", "seed", 1, preexec_fn=full)
    assert done.code == ExitCode.FAILED
    assert f"{file} cannot be written" in done.err
    assert file.read_text() == BEFORE
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is read-only, for root too")
def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for home in ("/proc", tmp_path / "file"):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
        done = call("config", "set", "seed", 1)
        assert done.exit_code == ExitCode.FAILED
        assert "cannot be written" in done.stderr
        assert call("config", "show").exit_code == ExitCode.OK


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(file: Path) -> None:
    file.parent.chmod(0o500)
    done = call("config", "set", "seed", 1)
    file.parent.chmod(0o700)
    assert done.exit_code == ExitCode.FAILED
    assert "cannot be written: Permission denied" in done.stderr


@given(
    lines=st.lists(
        st.sampled_from(
            [
                "# a",
                "",
                "[aliases]",
                "[defaults]",
                "budget = 1",
                "  seed = 2 # b",
                "mine = 'c'",
                'stop = ["x"]',
            ]
        ),
        max_size=9,
    ),
    ended=st.booleans(),
)
def test_an_edit_changes_one_thing(lines: list[str], ended: bool) -> None:
    """Of every file that is TOML: the other values and the other lines stay, in their order."""
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
