"""What asks for something that only the person can have told, as learned from examples."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_chat.chat.learned import ALWAYS, TABLE, personal, words


def plainly(sentence: str) -> float:
    """The same, slowly: every line of the table against the sentence."""
    weights = dict(line.rsplit("\t", 1) for line in TABLE.read_text("utf-8").splitlines())
    known = {word for feature in weights for word in re.split(" |~+", feature)}
    row = ["^", *(word if word in known else "*" for word in words(sentence)), "$"]
    total = float(weights.pop(ALWAYS))
    for feature, weight in weights.items():
        one, apart, other = re.fullmatch(r"([^ ~]+)(?:( |~+)([^ ~]+))?", feature).groups()  # type: ignore[union-attr]
        far = {None: range(1), " ": range(1, 2), "~": range(2, 4), "~~": range(4, 20)}[apart]
        ends = [at + by for at, word in enumerate(row) if word == one for by in far]
        total += float(weight) * any(end < len(row) and row[end] == (other or one) for end in ends)
    return total


@pytest.mark.parametrize(
    "sentence",
    ["What is my dog called?", "How do I mend my kettle?", "", "my my my my", "Ça va?", "zqx " * 40],
)
def test_it_is_the_sum_of_its_words_and_pairs(sentence: str) -> None:
    assert personal(sentence) == pytest.approx(plainly(sentence))


@given(st.text(max_size=300))
def test_any_text_has_a_number(text: str) -> None:
    assert math.isfinite(personal(text))


@pytest.mark.parametrize(
    "sentence",
    [
        "Which tooth did I have pulled?",
        "Who taught my nephew to sail?",
        "why did my sister sell the bakery",
        "Do I put milk in my tea?",
        "the name of my old piano teacher, please",
        "How did I meet my wife?",
        "Was I ever in hospital?",
        "remind me which gate my plane leaves from",
        "How many hens do I have?",
        "What was I going to buy my father?",
    ],
)
def test_only_the_person_can_have_told_it(sentence: str) -> None:
    assert personal(sentence) > 1


@pytest.mark.parametrize(
    "sentence",
    [
        "How do I get wax out of my carpet?",
        "How do I clean my boots?",
        "Where can I sell my sofa?",
        "Who can mend my roof?",
        "Why can't I open my tin?",
        "What should I give my niece?",
        "Why does my kettle whistle?",
        "Can my neighbour cut my hedge?",
        "Who invented the zip?",
        "Where did Chopin live?",
        "Do I need a licence to fish?",
        "What do you think of my drawing?",
        "Tell me a story about my name.",
        "My nephew sails and my niece rows.",
        "Last year we went to Malta by ship.",
        "How are you today?",
        "Wo kann ich hier parken?",
    ],
)
def test_nobody_needs_to_have_told_it(sentence: str) -> None:
    assert personal(sentence) < 0


def test_writing_does_not_matter() -> None:
    plain = personal("What is my cat called?")
    assert personal("what is my cat called") == plain
    assert personal("WHAT IS MY CAT CALLED?!") == plain
    assert personal("Hey, and what is my cat called?") == plain
    assert (
        personal("What's my cat called?")
        == personal("whats my cat called")
        == personal("What’s my cat called")
    )
    assert personal("What is my zorblax called?") == personal("What is my quuxel called?")
