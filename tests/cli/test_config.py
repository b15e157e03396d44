"""Settings from `config.toml`, the environment and flags; `h2o-chat config`, which shows and changes them."""

import json
import os
import resource
import stat
import sys
import tomllib
from collections import ChainMap
from pathlib import Path

import pytest
from here import h2o_here
from hypothesis import given
from hypothesis import strategies as st
from program import Program
from typer.testing import CliRunner, Result

from h2o_chat.base import precedence
from h2o_chat.base.config import FILE_LIMIT_BYTES, Sampling, Settings, config_file
from h2o_chat.base.errors import ExitCode, H2OChatError, UsageError
from h2o_chat.cli import cli, config_command
from h2o_chat.cli.flags import FLAGS, _only, settings_of
from h2o_chat.events.events import Session


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the configuration of this test stands; there is none yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    path = config_file()
    path.parent.mkdir(parents=True)
    return path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(one) for one in arguments])


def test_every_shared_flag_is_a_setting() -> None:
    assert set(precedence.NAMES) == {*FLAGS, "theme"}


def test_four_layers(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """What a flag says, else a variable, else the file, else what is built in."""
    file.write_text(
        f"[defaults]\nmodel = '{small}'\nbudget = 40\nrecent = 11\nseed = 3\nmax_tokens = 2\nsinks = 1\n"
    )
    monkeypatch.setenv("H2O_CHAT_BUDGET", "50")
    monkeypatch.setenv("H2O_CHAT_SEED", "5")
    monkeypatch.setenv("H2O_CHAT_SINKS", "")
    done = h2o_here("run", "Once", "--budget", 60, "--json")
    assert done.code == ExitCode.OK, done.err
    session = done.events[0]
    assert isinstance(session, Session)
    assert (session.model, session.budget, session.seed, session.recent) == (small.name, 60, 5, 11)
    assert (session.sinks, session.policy) == (1, "h2o")


@pytest.mark.parametrize("above", range(3))
def test_the_model_of_the_uppermost_layer_is_looked_for(
    file: Path, monkeypatch: pytest.MonkeyPatch, above: int
) -> None:
    file.write_text('[defaults]\nmodel = "model-of-the-file"\n')
    if above >= 1:
        monkeypatch.setenv("H2O_CHAT_MODEL", "model-of-the-variable")
    flags = ["--model", "model-of-the-flag"] if above == 2 else []
    done = call("run", "hi", *flags)
    assert done.exit_code == ExitCode.MODEL
    assert f"model-of-the-{('file', 'variable', 'flag')[above]}" in done.stderr


def test_the_screens_own_default_gives_way_too(file: Path) -> None:
    built_in: dict[str, object] = {"max_tokens": None, "stop": [], "budget": 512}
    assert settings_of(ChainMap({}, built_in))[1].max_tokens is None
    file.write_text('[defaults]\nmax_tokens = 9\nstop = ["###"]\n')
    assert settings_of(ChainMap({}, built_in))[1].max_tokens == 9
    assert settings_of(ChainMap({"stop": ["x"]}, built_in))[1].stop == ("x",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("budget = 5", ["budget stands outside of [defaults]"]),
        ("[defualts]", ["'defualts' is not known", "Did you mean defaults?"]),
        ("defaults = 3", ["defaults is 3", "[defaults]"]),
        ("[defaults]\nbugdet = 5", ["'bugdet' is not known", "Did you mean budget?"]),
        ("[defaults]\ntop-p = 0.5", ["'top-p' is not known", "Did you mean top_p?"]),
        ("[defaults]\nbudget = 0", ["[defaults] budget is 0", "[1, 100,000,000]"]),
        ('[defaults]\nbudget = "512"', ["budget is '512'", "a whole number"]),
        ("[defaults]\nbudget = true", ["budget is true", "a whole number"]),
        ("[defaults]\nbudget = 1.5", ["budget is 1.5", "a whole number"]),
        (f"[defaults]\nbudget = 0x{'f' * 9000}", ["budget is a number of more than 64 bits"]),
        ("[defaults]\ntemperature = nan", ["temperature is nan"]),
        (f"[defaults]\ntemperature = 0x{'f' * 9000}", ["more than 64 bits"]),
        ('[defaults]\npolicy = "nope"', ["policy 'nope' is not known", "h2o-paper"]),
        ('[defaults]\ndevice = "gpu"', ["device 'gpu' is not known", "cuda:N"]),
        ('[defaults]\nstop = "###"', ["stop is '###'", "a list of texts"]),
        ('[defaults]\nstop = ["a", 1]', ["stop is a list", "a list of texts"]),
        ("[defaults]\nseed = 2026-01-01", ["seed is 2026-01-01"]),
        ("[defaults]\nmodel = {a = 1}", ["model is a table", "a text"]),
        ("[aliases]\nmine = 3", ["'mine' is 3"]),
        ("[defaults", ["cannot be read"]),
        ("[defaults]\nseed = 1\nseed = 2", ["a second time: keep one"]),
        ("[defaults]\nseed = 1\n[defaults]", ["a second time: keep one"]),
        ("a = " + "[" * 9000, ["nested too deep"]),
        (b"\xff\xfe", ["cannot be read", "utf-8"]),
        (b"#" * (FILE_LIMIT_BYTES + 1), ["larger than 1 MiB"]),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_wrong_file_is_a_usage_error(file: Path, text: str | bytes, said: list[str]) -> None:
    """It names the file, the key, the value and what is allowed; `validate` says the same."""
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    for command in (["run", "hi"], ["config", "show"], ["config", "validate"]):
        done = call(*command)
        assert done.exit_code == ExitCode.USAGE, done.output
        assert str(file) in done.stderr
        assert all(words in done.stderr for words in said), done.stderr


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("BUDGET", "many", "a whole number"),
        ("BUDGET", "0", "[1, 100,000,000]"),
        ("TOP_P", "2", "(0, 1]"),
        ("IGNORE_EOS", "perhaps", "true or false"),
        ("POLICY", "none", "h2o-paper"),
        ("SYSTEM", "\udcff", "not UTF-8"),
        ("SEED", "9" * 5000, "a whole number"),
    ],
)
def test_a_wrong_variable_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(f"H2O_CHAT_{name}", value)
    done = call("run", "hi")
    assert done.exit_code == ExitCode.USAGE
    assert f"H2O_CHAT_{name}" in done.stderr
    assert said in done.stderr


def test_variables_are_read_as_what_they_stand_for() -> None:
    texts = {
        "BUDGET": " 64 ",
        "TEMPERATURE": "1",
        "IGNORE_EOS": "Yes",
        "STOP": "[INST]",
        "SYSTEM": "é 12",
        "MODEL": "",
        "DATA": "/elsewhere",
        "SHARED": "/elsewhere",
    }
    assert precedence.from_environment({f"H2O_CHAT_{name}": text for name, text in texts.items()}) == {
        "budget": 64,
        "temperature": 1.0,
        "ignore_eos": True,
        "stop": ("[INST]",),
        "system": "é 12",
    }
    assert precedence.from_environment({"H2O_CHAT_STOP": '["a", "b"]'}) == {"stop": ("a", "b")}


def test_a_misspelt_variable_can_be_told_from_others() -> None:
    found = precedence.unknown_variables(
        {"H2O_CHAT_BUGDET": "1", "H2O_CHAT_DATA": "x", "H2O_CHAT_BUDGET": "1"}
    )
    assert [(error.message, error.hint) for error in found] == [
        ("H2O_CHAT_BUGDET is not a setting.", "Did you mean H2O_CHAT_BUDGET?")
    ]


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
    assert rows["budget"] == ["64", "config.toml"]
    assert rows["top_p"] == ["0.5", "H2O_CHAT_TOP_P"]
    assert "\x1b" not in table
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


def test_what_cannot_work_together_is_said(file: Path) -> None:
    """Each may be right; the next `set` may mend it."""
    assert call("config", "set", "budget", 3).stderr == ""
    done = call("config", "set", "policy", "caote")
    assert done.exit_code == ExitCode.OK
    assert "The smallest budget that works here is 9" in done.stderr
    done = call("config", "validate")
    assert done.exit_code == ExitCode.USAGE
    assert f"{file}: A budget of 3 slots cannot hold" in done.stderr
    assert call("config", "set", "budget", 9).stderr == ""
    assert call("config", "validate").exit_code == ExitCode.OK


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


def test_validate_says_all_that_is_wrong(file: Path, tmp_path: Path) -> None:
    assert call("config", "validate").exit_code == ExitCode.OK
    file.write_text("[defaults]\nbudget = 0\nbugdet = 1\n[aliases]\na = 1\n[more]\n")
    done = call("config", "validate")
    assert done.exit_code == ExitCode.USAGE
    assert len(done.stderr.splitlines()) == 2 * 4
    other = tmp_path / "other.toml"
    other.write_text(BEFORE)
    assert call("config", "validate", other).exit_code == ExitCode.OK
    assert call("config", "validate", tmp_path / "absent.toml").exit_code == ExitCode.USAGE


def test_the_old_file_or_the_new_one(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stops it before the last step leaves the old file, and nothing beside it."""
    file.write_text(BEFORE)

    def stop(*_: object) -> None:
        assert file.read_text() == BEFORE
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(H2OChatError, match="No space left on device"):
        config_command._write(file, b"new")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        config_command._write(file, b"new")
    assert file.read_text() == BEFORE
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_disk_without_room(h2o: Program, file: Path) -> None:
    """The real program, in which no file may grow."""
    file.write_text(BEFORE)
    done = h2o(
        *("config", "set", "seed", 1), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    )
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


KEYS = st.sampled_from([*precedence.NAMES, "bugdet", "top-p", "a b", "Größe"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


def toml(value: object) -> str:
    """A value as TOML writes it, and some as it does not."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return str(value) if isinstance(value, float) else json.dumps(value)


@given(raw=st.binary(max_size=300) | st.text(alphabet="[]{}=\"'\\\n#.a1-_ éx:T", max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    read_or_refused(tmp_path_factory.getbasetemp() / "fuzzed.toml", raw)


@given(rows=st.dictionaries(KEYS, VALUES, max_size=4), table=st.sampled_from(["defaults", "aliases", "x"]))
def test_any_values_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[str, object], table: str
) -> None:
    lines = [f"{json.dumps(key)} = {toml(value)}" for key, value in rows.items()]
    read_or_refused(
        tmp_path_factory.getbasetemp() / "fuzzed.toml", "\n".join([f"[{table}]", *lines]).encode()
    )


def read_or_refused(path: Path, raw: bytes) -> None:
    """Values that the settings take, or an error that names the file."""
    path.write_bytes(raw)
    values: dict[str, object] = {}
    try:
        values, wrong = precedence.check_file(path)
    except UsageError as error:
        wrong = [error]
    assert all(str(path) in error.message for error in wrong)
    _only(Settings, values)
    _only(Sampling, values)


@given(name=st.sampled_from(precedence.NAMES), text=st.text(max_size=40) | st.integers().map(str))
def test_any_text_of_a_variable_is_read_or_refused(name: str, text: str) -> None:
    said, values = precedence.variable(name), {}
    try:
        values = precedence.from_environment({precedence.variable(name): text})
    except UsageError as error:
        said = error.message
    assert said.startswith(precedence.variable(name))
    assert values.keys() <= {name}


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
