"""Large models are fetched only after a question, or with --yes; asked of a stand-in for the hub."""

import json
import os
import re
from pathlib import Path

import pytest
from hub_server import Hub, Repository
from pulled import Call, on_terminal
from sweep import sweep

from h2o_chat.base.errors import ExitCode

pytestmark = pytest.mark.loopback

LARGE_BYTES = 13_500_000_000
SMALL_ENOUGH_BYTES = 100_000_000


def words(text: str) -> str:
    """The text of a box, without its lines and breaks."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


@pytest.fixture(autouse=True)
def claims(hub: Hub) -> None:
    """The hub claims to have a large model and a small one."""
    config = json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}).encode()
    files = {"config.json": config, "tokenizer.json": b"{}", "model.safetensors": b"\0" * 1000}
    for name, size in (("some/large", LARGE_BYTES), ("some/small", SMALL_ENOUGH_BYTES)):
        hub.repositories[name] = Repository(files, sizes={"model.safetensors": size})


@pytest.fixture
def room(tmp_path: Path) -> None:
    if os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize < LARGE_BYTES + (1 << 30):
        pytest.skip("the disk has no room for what is claimed")


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("command", [("models", "pull", "some/large"), ("run", "hi", "-m", "some/large")])
def test_a_large_download_is_refused_without_a_terminal(
    hub: Hub, here: Call, command: tuple[str, ...]
) -> None:
    done = here(*command)
    assert done.returncode == ExitCode.USAGE
    assert "some/large is not here: 13.5 GB are to be fetched" in words(done.stderr)
    assert "GB are free" in words(done.stderr)
    assert "Say --yes." in done.stderr
    assert hub.downloads("model.safetensors") == []
    done = here(*command, "--yes")
    assert "Say --yes." not in done.stderr
    assert hub.downloads("model.safetensors") != [], "it is fetched: that the hub lied about its size is told"


def test_a_small_download_is_fetched_without_a_question(hub: Hub, here: Call) -> None:
    done = here("models", "pull", "some/small")
    assert "Say --yes." not in done.stderr
    assert hub.downloads("model.safetensors") != []


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize(
    ("command", "answer", "fetched"),
    [
        (("models", "pull", "some/large"), "", False),
        (("models", "pull", "some/large"), "y", True),
        (("-m", "some/large"), "n", False),  # asked before the screen opens
        *sweep((("models", "pull", "some/large"), "n", False)),
    ],
)
def test_a_large_download_is_asked_for_on_a_terminal(
    hub: Hub, environment: dict[str, str], command: tuple[str, ...], answer: str, fetched: bool
) -> None:
    shown, code = on_terminal(environment, *command, answer=f"{answer}\n")
    assert "13.5 GB" in shown
    assert "are free" in shown
    assert ("was not fetched" in shown) == (not fetched)
    assert bool(hub.downloads("model.safetensors")) == fetched
    assert code != ExitCode.OK
