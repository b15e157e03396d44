"""One engine twice: in another process, and here."""

import subprocess
from typing import Any, cast

import pytest
from apart import SETTINGS, unheard
from forking import Forked

from h2o_chat.remote.engine_apart import EngineApart, engine_apart
from h2o_chat.remote.engine_here import engine_here


@pytest.fixture(scope="module")
def opened() -> EngineApart:
    """Forked from a process that has imported torch; how one begins, `test_engine_process.py` tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", Forked)
        return cast(EngineApart, engine_apart(SETTINGS, unheard))


@pytest.fixture
def apart(opened: EngineApart) -> EngineApart:
    return opened.remade(SETTINGS)


@pytest.fixture(scope="module")
def loaded() -> Any:
    return engine_here(SETTINGS, unheard)


@pytest.fixture
def here(loaded: Any) -> Any:
    return loaded.remade(SETTINGS)
