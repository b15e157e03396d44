"""Words that tell what another asks for, and what an answer must have."""

import pytest

from h2o_chat.chat.answers import may_answer
from h2o_chat.chat.neighbours import hows, kinds, neighbours, plain, spoken, told_by


def test_each_row_of_the_table_tells_what_it_says() -> None:
    """A sentence is made of each sign: "I", how it is said, a word. Beginnings leave none of them out."""
    for asked, signs in told_by().items():
        for sign in signs.split():
            how, kind_of, kind = sign.partition("~")
            words = sorted(kinds()[kind])[:3] if kind_of else [sign]
            for word in words:
                before = ["i", *sorted(hows()[how])[:1]] if kind_of else ["i"]
                assert neighbours(asked).told_by_self([*before, word]), (asked, sign, word)
                assert not neighbours(asked).told_by_self(["i", ".", word]), (asked, sign, word)


def test_a_kind_is_told_only_as_it_is_said() -> None:
    pet = neighbours("pet")
    assert pet.told_by_self(spoken(plain("I have two dogs.")))
    assert not pet.told_by_self(spoken(plain("I saw two dogs.")))
    assert not pet.told_by_self(spoken(plain("I would rather have a dog.")))
    assert not pet.told_by_self(spoken(plain("She has a dog.")))
    assert neighbours("live").told_by_self(spoken(plain("We have a house by the sea.")))
    assert not neighbours("live").told_by_self(spoken(plain("I saw your house burn.")))


def test_a_word_without_neighbours_has_none() -> None:
    assert not neighbours("xylograph").told_by_self(["i", "have", "a", "xylograph"])


@pytest.mark.parametrize(
    ("question", "text", "may"),
    [
        ("what is my phone number", "i lost my phone", False),
        ("what is my phone number", "my phone is 0171 5", True),
        ("how old is my aunt", "my aunt is nice", False),
        ("how old is my aunt", "my aunt turned seventy", True),
        ("when is my wedding", "my wedding was wonderful", False),
        ("when is my wedding", "my wedding is in june", True),
        ("where is my violin", "my violin is old", False),
        ("where is my violin", "my violin is in the attic", True),
        ("what colour is my bike", "i rode my bike home", False),
        ("what colour is my bike", "my bike is dark red", True),
        ("wo ist meine geige", "meine geige ist alt", True),
        ("who knows my number", "my sister knows my number", True),
        ("what is my salary", "I never thought I would make it.", False),
        ("what is my salary", "I make 2,000 a month.", True),
        ("what is my brother called", "My brother is a vet.", False),
        ("what is my brother called", "My brother is Tom.", True),
        ("what is my brother called", "my brother is tom", True),
        ("what is the name of my brother", "Tom is a brother of mine.", True),
    ],
)
def test_an_answer_has_what_is_asked_for(question: str, text: str, may: bool) -> None:
    assert may_answer(question, text) is may
