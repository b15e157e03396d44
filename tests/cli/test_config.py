"""Settings from `config.toml`, the environment and flags."""

import json
from collections import ChainMap
from pathlib import Path
from typing import Any

import pytest
from here import h2o_here
from hypothesis import given
from hypothesis import strategies as st

from h2o_chat.base import config, precedence
from h2o_chat.base.config import FILE_LIMIT_BYTES, Sampling, Settings
from h2o_chat.base.errors import ExitCode, UsageError
from h2o_chat.cli.flags import FLAGS, _only, settings_of
from h2o_chat.events.events import Session


def test_every_shared_flag_is_a_setting() -> None:
    assert set(precedence.NAMES) == {*FLAGS, "theme", "quiet", "saved_memories_bytes", "model_folders"}


def test_four_layers(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """A flag counts, else a variable, else the file, else the built-in default."""
    file.write_text(
        f"[defaults]\nmodel = '{small}'\nbudget = 40\nrecent = 11\nseed = 3\nmax_tokens = 2\nsinks = 1\n"
    )
    monkeypatch.setenv("H2O_CHAT_BUDGET", "50")
    monkeypatch.setenv("H2O_CHAT_SEED", "5")
    monkeypatch.setenv("H2O_CHAT_SINKS", "")
    done = h2o_here("run", "Once", "--budget", 60, "--json")
    (session,) = done.of(Session)
    assert (session.model, session.budget, session.seed, session.recent) == (small.name, 60, 5, 11)
    assert (session.sinks, session.policy) == (1, "h2o")


def test_the_screens_own_default_gives_way_too(file: Path) -> None:
    built_in: dict[str, object] = {"max_tokens": None, "stop": [], "budget": 512}
    assert settings_of(ChainMap({}, built_in))[1].max_tokens is None
    file.write_text('[defaults]\nmax_tokens = 9\nstop = ["###"]\n')
    assert settings_of(ChainMap({}, built_in))[1].max_tokens == 9
    assert settings_of(ChainMap({"stop": ["x"]}, built_in))[1].stop == ("x",)


def test_a_resumed_conversation_stands_between_the_file_and_the_flags(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_in: dict[str, object] = {"stop": [], "budget": 512, "sinks": None}
    file.write_text("[defaults]\nbudget = 40\n")
    monkeypatch.setenv("H2O_CHAT_SINKS", "2")
    held = {"budget": 50, "sinks": 3}
    assert settings_of(ChainMap({}, built_in), held)[0].budget == 50, "not what the file says"
    assert settings_of(ChainMap({}, built_in), held)[0].sinks == 3, "not what the variable says"
    assert settings_of(ChainMap({"budget": 60}, built_in), held)[0].budget == 60


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("budget = 5", ["budget stands outside of [defaults]"]),
        ("[defualts]", ["'defualts' is not known", "Did you mean defaults?"]),
        ("defaults = 3", ["defaults is 3", "[defaults]"]),
        (f"defaults = 0x{'f' * 5000}", ["defaults is a number of more than 64 bits"]),
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
        ("[aliases]\nmine = 3", ["['mine']", "a table of texts"]),
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
    """It names the file, the key, the value and what is allowed."""
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    for command in (["run", "hi"], ["config", "show"]):
        done = h2o_here(*command, ends=ExitCode.USAGE)
        assert str(file) in done.err
        assert all(words in done.err for words in said), done.err
        assert "Value error" not in done.err


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
    done = h2o_here("run", "hi", ends=ExitCode.USAGE)
    assert f"H2O_CHAT_{name}" in done.err
    assert said in done.err


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


def test_all_tables_are_of_one_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may write the file meanwhile."""
    path, read = tmp_path / "config.toml", config.read_tables
    path.write_text('[defaults]\nseed = 4\n[aliases]\nmine = "a/b"\n[mcp.one]\ncommand = ["x"]\n')

    def read_and_replaced(file: Path) -> dict[str, Any]:
        tables = read(file)
        file.write_text("[defaults")
        return tables

    monkeypatch.setattr(config, "read_tables", read_and_replaced)
    assert precedence.from_file(path) == {"seed": 4}


@given(rows=st.dictionaries(KEYS, VALUES, max_size=4), table=st.sampled_from(["defaults", "aliases", "x"]))
def test_any_values_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, rows: dict[str, object], table: str
) -> None:
    lines = [f"{json.dumps(key)} = {toml(value)}" for key, value in rows.items()]
    path = tmp_path_factory.getbasetemp() / "fuzzed.toml"
    path.write_bytes("\n".join([f"[{table}]", *lines]).encode())
    said, values = str(path), {}
    try:
        values = precedence.from_file(path)
    except UsageError as error:
        said = error.message
    assert str(path) in said
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
