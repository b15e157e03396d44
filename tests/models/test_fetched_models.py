"""Models that were fetched: listed, completed in the shell, removed."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import Hub
from pulled import Call, on_terminal, refused, repository, snapshot, weights

from h2o_chat.base.errors import ExitCode

pytestmark = pytest.mark.loopback


def test_removing(hub: Hub, here: Call, tmp_path: Path) -> None:
    hub.repositories["some/model"] = repository(weights())
    here("models", "pull", "some/model")
    asked = here("models", "rm", "some/model")
    assert asked.returncode == ExitCode.USAGE
    assert "--yes" in asked.stderr
    assert snapshot(tmp_path, "some/model").is_dir()
    assert here("models", "rm", "model", "--yes").stdout == "Removed some/model.\n"
    assert not snapshot(tmp_path, "some/model").exists()
    refused(here("models", "rm", "some/model", "--yes"), "nothing to remove")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize(("answer", "gone"), [("\n", False), ("y\n", True)])
def test_removing_is_asked_on_a_terminal(
    environment: dict[str, str], tmp_path: Path, answer: str, gone: bool
) -> None:
    root = tmp_path / "hf" / "hub" / "models--some--model"
    (root / "blobs").mkdir(parents=True)
    (root / "blobs" / "x").write_bytes(bytes(3000))
    shown, code = on_terminal(environment, "models", "rm", "some/model", answer=answer)
    assert "Remove some/model (3 kB) from" in shown
    assert code == ExitCode.OK
    assert root.exists() is not gone


@pytest.mark.parametrize("by", ["path", "alias"])
def test_a_folder_is_not_taken_for_a_fetched_model_of_its_name(
    here: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """`models rm ./models/gpt2` removed the `gpt2` of the cache."""
    mine, fetched = tmp_path / "models" / "gpt2", tmp_path / "hf" / "hub" / "models--gpt2"
    mine.mkdir(parents=True)
    (mine / "config.json").write_text("{}")
    (fetched / "blobs").mkdir(parents=True)
    (tmp_path / "config" / "h2o-chat").mkdir(parents=True)
    (tmp_path / "config" / "h2o-chat" / "config.toml").write_text(
        f"[aliases]\nmine = {json.dumps(str(mine))}"
    )
    monkeypatch.chdir(tmp_path)
    name = {"path": "./models/gpt2", "alias": "mine"}[by]
    refused(here("models", "rm", name, "--yes"), f"{name} is the folder {mine}", "yours to delete")
    assert fetched.is_dir()
    assert mine.is_dir()


def test_the_list_says_what_fits(here: Call) -> None:
    assert "llama-7b" not in here("models").stdout
    done = here("models", "list", "--hub")
    assert done.returncode == ExitCode.OK
    assert re.search(r"llama-7b +13\.5 GB +4\.2 GB +2,048 .* huggyllama/llama-7b\n", done.stdout)
    assert re.search(r"pocket +\d+ MB +comes with the program\n", done.stdout)
    assert "gated" in done.stdout
    assert done.stderr == ""


def test_names_complete_in_the_shell(here: Call) -> None:
    words = {
        "_H2O_CHAT_COMPLETE": "complete_bash",
        "COMP_WORDS": "h2o-chat models info tinyl",
        "COMP_CWORD": "3",
    }
    done = subprocess.run(
        [sys.executable, "-c", "from h2o_chat.cli.cli import main; main()"],
        env=os.environ | words,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["tinyllama"]
