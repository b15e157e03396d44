"""Long texts in slices: what comes out is what one call gives."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_chat.base import utf8

texts = st.text(st.characters(codec="utf-8"), max_size=40)


@pytest.fixture(autouse=True, scope="module")
def short_slices() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utf8, "SLICE", 4)
        yield


@given(texts)
def test_slices_are_the_whole(text: str) -> None:
    assert b"".join(utf8.encoded(text)) == text.encode()
    assert utf8.decoded(text.encode()) == text


@given(st.binary(max_size=40))
def test_what_is_no_utf8_is_told_with_its_place(raw: bytes) -> None:
    assert tried(utf8.decoded, raw) == tried(bytes.decode, raw)


def tried(decode: Callable[[bytes], str], raw: bytes) -> tuple[str, int]:
    """The text; or why there is none, and from which byte on."""
    try:
        return decode(raw), -1
    except UnicodeDecodeError as error:
        return error.reason, error.start
