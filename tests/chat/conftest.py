"""What the tests of conversations share."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from found_templates import FAMILIES

from h2o_chat.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path)
    yield opened
    opened.close()


@pytest.fixture(params=FAMILIES, scope="module")
def tokenizer(request: pytest.FixtureRequest) -> Any:
    return FAMILIES[request.param]()
