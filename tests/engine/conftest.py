"""The bundled model with the native step, a random one exactly; the step that a test runs with."""

from dataclasses import replace
from pathlib import Path

import pytest
from beside import EXACT, NATIVE
from opened_models import loaded as opened
from sweep import sweep

from h2o_chat.base.config import EngineName
from h2o_chat.models.load import Loaded, load


@pytest.fixture(scope="session", params=["auto", *sweep("transformers")])
def step(request: pytest.FixtureRequest) -> EngineName:
    """The step that computes a token: the native one, where it was compiled; in `make test-all` also that of
    transformers, which takes six times as long."""
    name: EngineName = request.param
    return name


@pytest.fixture(scope="module")
def native() -> Loaded:
    return opened(NATIVE)


@pytest.fixture(scope="module")
def loaded(little: Path) -> Loaded:
    """A random model in float64, where a file of tests opens no other."""
    return load(replace(EXACT, model=str(little)), lambda *_: None)
