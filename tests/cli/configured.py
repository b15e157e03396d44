"""A configuration of the test's own, and the program called in this process."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from h2o_chat.base.config import config_file
from h2o_chat.cli import cli


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the configuration of this test stands; there is none yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    path = config_file()
    path.parent.mkdir(parents=True)
    return path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(one) for one in arguments])
