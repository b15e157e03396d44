"""One model for all tests of the server in a process."""

import opened_models
import pytest

from h2o_chat.base.config import Settings
from h2o_chat.models.load import Loaded


@pytest.fixture(scope="session")
def loaded() -> Loaded:
    return opened_models.loaded(Settings(threads=1))
