"""Where some words of a long text lie among its tokens."""

import random

from hypothesis import given
from hypothesis import strategies as st

from h2o_chat.chat.conversation.spans import BLOCK_CHARACTERS, Places


def count(text: str) -> int:
    """A token for each word, and one for each letter of a code in capitals."""
    return sum(len(word) if word.isupper() else 1 for word in text.split())


@given(st.integers(0, 2**32 - 1), st.integers(1, 5000))
def test_words_lie_where_all_before_them_ends(seed: int, words: int) -> None:
    rng = random.Random(seed)
    text = " ".join(rng.choice(("garden", "tea", "XK7QV", "of", "RAIN")) for _ in range(words))
    at = rng.randrange(words)
    text = " ".join([*text.split()[:at], "Rexo", *text.split()[at:]])
    before = count(text[: text.find("Rexo")])
    whole = range(100, 100 + count(text))
    assert Places(text, count).of("Rexo", whole) == range(100 + before, 101 + before)


def test_a_text_is_tokenised_once() -> None:
    counted = list[int]()

    def counting(text: str) -> int:
        counted.append(len(text))
        return count(text)

    text = "tea and music " * 1000
    places = Places(text, counting)
    assert sum(counted) == len(text)
    counted.clear()
    places.of("music", range(3000))
    assert sum(counted) <= BLOCK_CHARACTERS + len("music") + 20


def test_words_that_are_not_there_are_all_of_it() -> None:
    assert Places("tea", count).of("coffee", range(3, 9)) == range(3, 9)
    assert Places("", count).of("coffee", range(3, 9)) == range(3, 9)
