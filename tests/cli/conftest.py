"""Models, and a configuration of the test's own."""

import shutil
from pathlib import Path

import pytest
from program import POCKET

from h2o_chat.base.config import config_file


@pytest.fixture(scope="session")
def small(shared_models: Path) -> Path:
    """The smallest real model: continues stories, has no chat template."""
    return shared_models / "stories260k"


@pytest.fixture(scope="session")
def chatty(shared_models: Path) -> Path:
    """A real small model with a chat template."""
    return shared_models / "pilot-chat"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the bundled model."""
    return shutil.copytree(POCKET, tmp_path / "copied")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the configuration of this test stands; there is none yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    path = config_file()
    path.parent.mkdir(parents=True)
    return path
