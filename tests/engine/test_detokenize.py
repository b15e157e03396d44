"""Text deltas from real tokenizers: never half a character, and in sum the whole text."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from h2o_chat.engine.detokenize import Detokenizer, StopText, spelling


@pytest.fixture(scope="module", params=["stories3m", "stories260k", "pilot-chat"])
def real(request: pytest.FixtureRequest, shared_models: Path) -> Any:
    """The tokenizer of a real model."""
    return AutoTokenizer.from_pretrained(shared_models / request.param)


def told(real: Any, ids: list[int]) -> list[str]:
    """The deltas of a whole text."""
    stream = Detokenizer(real)
    return [stream.add(token) for token in ids] + [stream.flush()]


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_deltas_add_up_to_the_text(real: Any, text: str) -> None:
    ids = real.encode("One day " + text, add_special_tokens=False)
    whole = real.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert "".join(told(real, ids)) == whole


def test_a_character_is_never_split(real: Any) -> None:
    ids = real.encode("a 🦊 naïve 漢字 day", add_special_tokens=False)
    assert len(ids) > 8  # the fox takes several tokens
    parts = told(real, ids)
    assert "�" not in "".join(parts)
    assert "🦊" in parts
    assert "" in parts


@pytest.mark.parametrize(("before", "after"), [("漢", "字 hi"), ("hi 😀", "😀 there")])
def test_a_prompt_that_ends_in_bytes_does_not_spoil_the_answer(real: Any, before: str, after: str) -> None:
    stream = Detokenizer(real, real.encode(before, add_special_tokens=False))
    ids = real.encode(after, add_special_tokens=False)
    assert "".join(stream.add(token) for token in ids).strip() == after


@pytest.mark.parametrize("real", ["pilot-chat"], indirect=True)
def test_broken_bytes_are_shown_in_the_end(real: Any) -> None:
    half = real.encode("🦊", add_special_tokens=False)[:1]
    stream = Detokenizer(real)
    parts = [stream.add(token) for token in half * 40]
    assert "�" in "".join(parts)
    assert all(len(part) < 20 for part in parts)  # held back for a few tokens, not for ever


def test_the_space_before_a_continuation_is_kept(real: Any) -> None:
    ids = real.encode(" Once upon a time", add_special_tokens=False)
    stream = Detokenizer(real, ids[:-2])
    assert "".join(stream.add(token) for token in ids[-2:]).startswith(" ")


@given(text=st.text("é🙂Ж漢ab", min_size=1, max_size=9))
def test_bytes_of_tokens_add_up_where_characters_are_split(real: Any, text: str) -> None:
    spelt = [spelling(real, token)[1] for token in real.encode(text, add_special_tokens=False)]
    assert b"".join(spelt).strip() == text.encode()


def test_a_token_alone_keeps_its_space(real: Any) -> None:
    words = [spelling(real, token) for token in real.encode("Hello there , you", add_special_tokens=False)]
    assert "".join(text for text, _ in words).strip() == "Hello there , you"
    assert all(text.encode() == spelt for text, spelt in words)


@given(st.data())
def test_stop_strings_are_found_however_the_text_is_cut(data: st.DataObject) -> None:
    alphabet = st.sampled_from("ab")
    stops = data.draw(st.lists(st.text(alphabet, min_size=1, max_size=4), min_size=1, max_size=3))
    pieces = data.draw(st.lists(st.text(alphabet, max_size=3), max_size=8))
    stream, shown = StopText(stops), ""
    for piece in pieces:
        shown += stream.add(piece)
        if stream.found:
            break
    else:
        shown += stream.flush()
    whole = "".join(pieces)
    first = min((at for at in map(whole.find, stops) if at >= 0), default=len(whole))
    if stream.found:
        assert shown == whole[: len(shown)]
        assert whole.startswith(stream.found, len(shown))
        assert not any(stop in shown for stop in stops)
    else:
        assert shown == whole
        assert first == len(whole)
