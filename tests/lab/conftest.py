"""The bundled model, opened for tests of the lab."""

from pathlib import Path

import opened_models
import pytest

from h2o_chat.base.config import Settings
from h2o_chat.models.load import Loaded


@pytest.fixture(scope="session")
def bundled() -> Path:
    return Path(__file__).parents[2] / "assets" / "pocket"


@pytest.fixture(scope="session")
def pocket(bundled: Path) -> Loaded:
    loaded: Loaded = opened_models.loaded(Settings(model=str(bundled), threads=1))
    return loaded
