"""The real program in a process of its own, forked from one that has imported what it needs."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from forking import Forked
from program import PROGRAM, Ended, Program


@pytest.fixture(scope="session")
def h2o() -> Program:
    """Runs `h2o-chat ARGUMENTS` without a terminal, with what is piped in."""

    def run(*arguments: object, piped: str | bytes = b"", **how: Any) -> Ended:
        raw = piped.encode() if isinstance(piped, str) else piped
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with Forked([*PROGRAM, *map(str, arguments)], **streams, **how) as process:
            try:
                out, err = process.communicate(raw, timeout=400)
            except BaseException:
                process.kill()
                raise
        return Ended(process.returncode, out.decode(), err.decode())

    return run


@pytest.fixture(scope="session")
def small(shared_models: Path) -> Path:
    """The smallest real model: continues stories, has no chat template."""
    return shared_models / "stories260k"


@pytest.fixture(scope="session")
def chatty(shared_models: Path) -> Path:
    """A real small model with a chat template."""
    return shared_models / "pilot-chat"
