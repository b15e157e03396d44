"""Any text is kept and can be looked for."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storing import created

from h2o_chat.store import Store, clean

anything = st.text(st.characters(exclude_categories=()), max_size=40)
operators = st.sampled_from(
    ['"', "*", "AND", "OR", "NOT", "NEAR(a", ")", "text:", "^", "-", "+", "{", "\0", "'", ";"]
)


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("spoken"))
    with store.claim(created(store, "m", {}, "t")) as writer:
        writer.said("user", "The Grüße of an a AND b OR c near NOT text")
        writer.said("assistant", "other words")
    yield store
    store.close()


@given(words=st.lists(st.one_of(anything, operators), max_size=8).map(" ".join))
def test_search_takes_anything(spoken: Store, words: str) -> None:
    spoken.search(words)


@pytest.mark.parametrize(
    ("words", "snippet"),
    [
        ("gruss", None),
        ("grusse", None),
        ("GRUße", "The «Grüße» of an a AND b OR c near NOT text"),
        ("of gr", "The «Grüße» «of» an a AND b OR c near NOT text"),
        ("gr of", None),
        ("of nothere", None),
        ("b OR", "The Grüße of an a AND «b» «OR» c near NOT text"),
        ('"of"', "The Grüße «of» an a AND b OR c near NOT text"),
        ("g", None),
        ("of-an", "The Grüße «of an» a AND b OR c near NOT text"),
        ("", None),
    ],
)
def test_search(spoken: Store, words: str, snippet: str | None) -> None:
    """Accents and case do not matter; the last word may be the beginning of one."""
    assert [hit.snippet for hit in spoken.search(words)] == ([snippet] if snippet else [])


@pytest.mark.parametrize("text", ["a\ud800b", "aéb"])
def test_a_text_is_never_encoded_in_one_call(text: str) -> None:
    """Other threads would wait for it, see `base/utf8.py`."""

    class Long(str):
        def encode(self, *_: str) -> bytes:
            raise AssertionError("in one call")

    assert clean(Long(text)) == text.encode("utf-8", "replace").decode()


@given(text=anything, title=anything)
def test_any_text_is_kept(spoken: Store, text: str, title: str) -> None:
    written = text.encode("utf-8", "replace").decode()
    conversation = created(spoken, "m", {}, title)
    with spoken.claim(conversation) as writer:
        writer.said("user", text)
        writer.answering()
        writer.token(1, text)
        writer.finished(text, "eos", 0, 0)
    assert [m.text for m in spoken.path(conversation)] == [written, written]
    spoken.remove(conversation)
