"""What the tests of conversations share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from h2o_chat.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path)
    yield opened
    opened.close()
