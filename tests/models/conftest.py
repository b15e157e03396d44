"""A stand-in for the hub on the loopback, the program that asks it, and a tiny model."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from gguf_files import write
from gguf_tiny import folder_of
from hub_server import Hub, serve
from huggingface_hub import constants
from pulled import PROGRAM, Call
from typer.testing import CliRunner

from h2o_chat.cli.cli import app


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    """One hub for all tests; each puts its own repositories there."""
    with serve() as hub:
        yield hub


@pytest.fixture
def hub(server: Hub) -> Hub:
    """The hub, empty."""
    server.repositories.clear()
    server.requests.clear()
    server.sent.clear()
    server.tokens.clear()
    return server


@pytest.fixture
def environment(hub: Hub, tmp_path: Path) -> dict[str, str]:
    """A user without a cache, a token or a configuration, whose hub is the stand-in."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING", "TRANSF"))
    }
    return kept | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "NO_PROXY": "127.0.0.1",
    }


@pytest.fixture
def h2o(environment: dict[str, str]) -> Call:
    """Runs `h2o-chat ARGUMENTS`."""

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *arguments],
            env=environment | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def here(environment: dict[str, str], hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """A call in this process; huggingface_hub has read its variables already, so they are patched."""
    for name in [name for name in os.environ if name not in environment]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    path = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", path)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "hf" / "token"))

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        done = CliRunner().invoke(app, arguments, env=more)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)

    return run


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A tiny model in a folder."""
    return folder_of("llama", tmp_path / "llama")


@pytest.fixture
def file(llama: Path, tmp_path: Path) -> Path:
    """The tiny model as a GGUF file."""
    return write(llama, tmp_path / "tiny.gguf", "Q8_0", template="{{ messages }}")
