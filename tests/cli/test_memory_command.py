"""`h2o-chat memory`: the list of what is remembered for all conversations, edited from the shell."""

import json
from pathlib import Path

import pytest
from here import h2o_here

from h2o_chat.base.errors import ExitCode


def test_facts_are_listed_changed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("H2O_CHAT_DATA", str(tmp_path / "data"))
    assert "Nothing is remembered" in h2o_here("memory", "list").err
    h2o_here("memory", "add", "My cat is \x1b[31mMiso.")
    h2o_here("memory", "add", "I live in Bern.")
    listed = h2o_here("memory", "list").out
    assert "\x1b" not in listed
    assert [line.split()[0] for line in listed.splitlines()] == ["1", "2"]
    h2o_here("memory", "edit", "2", "I live in Basel.")
    h2o_here("memory", "rm", "1")
    (fact,) = json.loads(h2o_here("memory", "export").out)
    assert (fact["number"], fact["text"]) == (2, "I live in Basel.")
    assert "no fact 1" in h2o_here("memory", "rm", "1", ends=ExitCode.USAGE).err
