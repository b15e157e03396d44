"""The bundled model: with packed weights and the native step, and exactly."""

import pytest
from beside import EXACT, NATIVE

from h2o_chat.models.load import Loaded, load
from h2o_chat.native.loading import open_model


@pytest.fixture(scope="module")
def native() -> Loaded:
    return open_model(NATIVE, lambda *_: None)


@pytest.fixture(scope="module")
def exact() -> Loaded:
    return load(EXACT, lambda *_: None)
