"""The real program in a process of its own."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from program import PROGRAM, Ended, Program


@pytest.fixture(scope="session")
def h2o() -> Program:
    """Runs `h2o-chat ARGUMENTS` without a terminal, with what is piped in."""

    def run(*arguments: object, piped: str | bytes = b"", **how: Any) -> Ended:
        raw = piped.encode() if isinstance(piped, str) else piped
        done = subprocess.run(
            [*PROGRAM, *map(str, arguments)], input=raw, capture_output=True, timeout=400, check=False, **how
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture(scope="session")
def small(shared_models: Path) -> Path:
    """The smallest real model: continues stories, has no chat template."""
    return shared_models / "stories260k"


@pytest.fixture(scope="session")
def chatty(shared_models: Path) -> Path:
    """A real small model with a chat template."""
    return shared_models / "pilot-chat"
