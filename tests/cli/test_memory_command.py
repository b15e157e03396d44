"""`h2o-chat memory`: the list of what is remembered for all conversations, edited from the shell."""

import json
from pathlib import Path

import pytest
from here import h2o_here

from h2o_chat.base.errors import ExitCode


def test_facts_are_listed_changed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("H2O_CHAT_DATA", str(tmp_path / "data"))
    assert "Nothing is remembered" in h2o_here("memory", "list").err
    assert h2o_here("memory", "add", "My cat is \x1b[31mMiso.").code == ExitCode.OK
    h2o_here("memory", "add", "I live in Bern.")
    listed = h2o_here("memory", "list").out
    assert "\x1b" not in listed
    assert [line.split()[0] for line in listed.splitlines()] == ["1", "2"]
    assert h2o_here("memory", "edit", "2", "I live in Basel.").code == ExitCode.OK
    assert h2o_here("memory", "rm", "1").code == ExitCode.OK
    (fact,) = json.loads(h2o_here("memory", "export").out)
    assert (fact["number"], fact["text"]) == (2, "I live in Basel.")
    refused = h2o_here("memory", "rm", "1")
    assert (refused.code, "no fact 1" in refused.err) == (ExitCode.USAGE, True)
