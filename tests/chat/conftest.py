"""Fixtures that the tests of conversations share."""

from typing import Any

import pytest
from found_templates import FAMILIES
from opened_models import loaded as opened
from talk import POCKET

from h2o_chat.base.config import Settings


@pytest.fixture(params=FAMILIES, scope="module")
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return FAMILIES[request.param]()


@pytest.fixture(scope="module")
def loaded() -> Any:
    """The bundled model."""
    return opened(Settings(model=str(POCKET), threads=1))
