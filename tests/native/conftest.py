"""What the tests of the native step share."""

from collections.abc import Callable
from pathlib import Path

import pytest
from families import saved

from h2o_chat.native import library
from h2o_chat.native.packed import Packed
from h2o_chat.native.packing import packed_for

Pack = Callable[[str, int], Packed]
"""A random model by its name in `families.MODELS`, in so many bits."""


@pytest.fixture
def compiled() -> None:
    """Skips the test where the library was not compiled."""
    if library.why_not():
        pytest.skip(f"there is no native step: {library.why_not()}")


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a random model, made once."""
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = saved(name, tmp_path_factory.mktemp("model"))
        return made[name]

    return folder


@pytest.fixture(scope="session")
def pack(folders: Callable[[str], Path]) -> Pack:
    """Its packed weights."""
    return lambda name, bits: packed_for(folders(name), bits, lambda *_: None)
