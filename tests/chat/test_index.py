"""The index finds earlier messages by words alone."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_chat.chat.conversation.sentences import (
    PAGE_CHARACTERS,
    PIECE_CHARACTERS,
    asked_from,
    pieces_of,
    question_of,
)
from h2o_chat.chat.recall.index import Index, rarity_of
from h2o_chat.chat.recall.recall import LEAST_SCORE
from h2o_chat.chat.templates.chat_template import literal
from h2o_chat.models.load_tokenizer import load_tokenizer

TALK = [
    "I have been thinking about music lately.",
    "The dog of my neighbour is called Fizade.",
    "Some people say that tea and music go well together.",
    "My friend waited in room number 530.",
    "I want to book a table for two at Lugeka.",
    "When the weather is bad I think of holidays.",
    "What is the address of the museum?",
    "Do you like films?",
]
FACTS = [
    "My dog is called Rexo.",
    "The colour of my bicycle is dark grey.",
    "My room number is 1191.",
    "I live in Fimo.",
    "My boss's name is Lusova.",
    "The Wi-Fi code is tulip88.",
    "Mein Zahnarzttermin ist am Montag.",
    "J'habite à Besançon.",
    "我的狗叫小白。",
    "اسم قطتي لونا.",
    "Мою сестру зовут Ольга.",
]


POCKET = Path(__file__).parents[2] / "assets" / "pocket"


@cache
def tokenizer() -> Any:
    return load_tokenizer(POCKET, 4096)


def rarity(text: str) -> float:
    return rarity_of(literal(tokenizer(), text))


def index_of(said: list[str], user: bool = True) -> Index:
    index = Index(rarity)
    for place, text in enumerate(said):
        index.add(place, text, user)
    return index


def found(said: list[str], question: str) -> list[str]:
    hits = index_of(said).find(question)
    return [hit.piece.text for hit in hits if hit.score >= LEAST_SCORE]


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("What is my dog called?", "My dog is called Rexo."),
        ("What colour is my bicycle?", "The colour of my bicycle is dark grey."),
        ("What is my room number?", "My room number is 1191."),
        ("What is my boss's name?", "My boss's name is Lusova."),
        ("Where do I live?", "I live in Fimo."),
        ("what is the wifi code", "The Wi-Fi code is tulip88."),
        ("Wann ist mein Zahnarzttermin?", "Mein Zahnarzttermin ist am Montag."),
        ("Où est-ce que j'habite ? Besancon ?", "J'habite à Besançon."),
        ("我的狗叫什么？", "我的狗叫小白。"),
        ("ما اسم قطتي؟", "اسم قطتي لونا."),
        ("Как зовут мою сестру?", "Мою сестру зовут Ольга."),
        ("Which dog is called Fizade?", "The dog of my neighbour is called Fizade."),
    ],
)
def test_the_fact_is_found_first_among_its_neighbours(question: str, wanted: str) -> None:
    assert found([*TALK, *FACTS, *TALK], question)[0] == wanted


@pytest.mark.parametrize(
    "question",
    ["How are you today?", "What is the capital of France?", "Who wrote Hamlet?", "ok", TALK[6]],
)
def test_nothing_is_found_for_what_nobody_told(question: str) -> None:
    """A question that was asked before tells nothing either."""
    assert found([*TALK, *FACTS, "Hello.", *TALK], question) == []


CAT = "I have a cat called Pumpernickel, and I drink much tea."


def test_a_page_hides_nothing_that_was_told_in_a_few_words() -> None:
    """It is full of cats and names, so that they are rare in the conversation no more."""
    page = "The cat had a name that no other cat had, as a cat of that name told the Queen. " * 40
    index = index_of([CAT, *TALK, page, *TALK])
    hits = [hit for hit in index.find("What is my cat called?") if not hit.piece.page]
    assert hits[0].piece.text == CAT
    assert hits[0].score >= LEAST_SCORE


def test_the_models_echo_of_a_fact_makes_its_words_no_less_rare() -> None:
    index = index_of([CAT, *TALK])
    for place in range(6):
        index.add(100 + place, f"Pumpernickel is a fine name, and {place} is a fine number.", user=False)
    best = index.find("Who is Pumpernickel?")[0]
    assert best.piece.text == CAT
    assert best.score >= LEAST_SCORE


def test_what_the_model_alone_has_said_is_found_where_the_user_only_asks() -> None:
    index = Index(rarity)
    for place in range(120):
        index.add(place, f"Answer {place}: a walk, some rest and good food will do you good.", user=False)
    for place in (200, 201):
        index.add(place, f"Your booking code is XK42 for the {place} to Ghent.", user=False)
    assert [hit.piece.message for hit in index.find("What is my booking code?")][:2] == [201, 200]
    assert index.find("What is my booking code?")[0].score >= LEAST_SCORE


def test_what_the_model_often_says_is_not_all_looked_at() -> None:
    index = index_of(["I have a cat."])
    for place in range(500):
        index.add(10 + place, f"The sun shines on {place} houses.", user=False)
    assert len(index.find("Where is the cat?")) < 10


def test_common_words_find_nothing_among_few_messages() -> None:
    assert found(["My grandmother's birthday is on the 9th of March."], "What's my pet called?") == []


def test_newer_pieces_and_the_users_own_win_ties() -> None:
    said = ["My locker number is 17.", *TALK, "My locker number is 255.", *TALK]
    assert found(said, "What is my locker number?")[:2] == [said[9], said[0]]
    index = Index()
    for place, text in enumerate(said):
        index.add(place, text, user=place != 9)
    assert index.find("What is my locker number?")[0].piece.text == said[0]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("My name is Bob. What is yours?", ["My name is Bob."]),
        ("I met Dr. Smith at 3.5 pm on www.x.org!", ["I met Dr. Smith at 3.5 pm on www.x.org!"]),
        ("one\n\ntwo", ["one two"]),
        ("你好。我的狗叫小白。你呢？", ["你好。 我的狗叫小白。"]),
        ("", []),
    ],
)
def test_a_message_is_cut_into_what_it_tells(text: str, wanted: list[str]) -> None:
    assert list(pieces_of(text)) == wanted


def test_what_is_longer_than_a_piece_is_cut_at_a_space_in_front_of_a_long_word() -> None:
    long = "x" * (PIECE_CHARACTERS + 10)
    assert list(pieces_of(f"See {long}.")) == ["See", long[:PIECE_CHARACTERS], f"{long[PIECE_CHARACTERS:]}."]


@pytest.mark.parametrize("mark", ["?", "？", "؟", "\u037e", "?!", '?"', "⁈"])
def test_question_marks_of_all_scripts_ask(mark: str) -> None:
    assert question_of(f"Well. He went there{mark}") == f"He went there{mark}"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("I like tea.", ""),
        ("what is my dog called", "what is my dog called"),
        ("What? I see. Who is he?", "What? Who is he?"),
        ("Is it long? " + "It is a page. " * 100 + "Who is it?", "Who is it?"),
        ("Is it long? " + "It is a page. " * 100, ""),
        ("/notes.txt:\n```\n" + "It is a file. " * 100 + "\n\nWho is it?\n```\n\n", ""),
        ("Why does this fail?\n```\n1 / 0\n```", "Why does this fail?"),
        ("मेरे कुत्ते का नाम क्या है", "मेरे कुत्ते का नाम क्या है"),
        ("It is a page. " * 100 + "\r\n\r\nWhich boat? I forgot", "Which boat?"),
        ("It is a page. " * 100 + "\n \nWhich boat? I forgot\n\n", "Which boat?"),
    ],
)
def test_the_question_of_a_message(text: str, wanted: str) -> None:
    assert question_of(text) == wanted


def test_the_question_of_a_page_is_its_last_sentence() -> None:
    page = "It is a page. " * 100
    assert page[asked_from(page + "Who is it?") :] == ""
    assert asked_from("x" * PAGE_CHARACTERS) == 0


STORY = (
    "It rained all day, and nobody came by. The road was empty. "
    * 9
    + "The Baron of Tull rode out at night, and the moon was on the road that he had taken as a boy with his "
    "father and two of the dogs, long before all this began and the house was sold to strangers. "
    "“Why did he leave?” “He had lost a wager of nine geese, and that to somebody who had never in all "
    "these years been seen to win at anything, least of all at cards, which he could hardly hold.” "
    + "It rained all day, and nobody came by. The road was empty. "
    * 9
)


def test_in_a_story_what_stands_beside_the_named_one_is_found_with_it() -> None:
    hits = index_of([STORY]).find("What happened to the Baron of Tull?")
    assert "Baron of Tull" in hits[0].piece.text
    assert "nine geese" in hits[1].piece.text


FILLER = "It rained all day, and nobody came by; the road was empty as far as she could see. " * 2


def test_the_piece_behind_the_best_one_comes_before_others() -> None:
    """“What for?” she asked: the answer shares no word with the question, and others of the story do."""
    asked = "The Duchess is under sentence of death, said the Rabbit. What for, she asked. " + FILLER
    answer = "She boxed the ears of somebody, and laughed, as he told them. " + FILLER
    other = "The death of the Duchess was on all lips. " + FILLER
    parts = (FILLER * 2, asked, answer, FILLER * 2, other, *[FILLER * 2] * 9)
    page = "\n".join(one[:199] + "." for one in parts)
    hits = index_of([page]).find("Why was the Duchess under sentence of death?", about_page=True)
    assert "Duchess is under sentence" in hits[0].piece.text
    assert "boxed the ears" in hits[1].piece.text


def test_a_story_is_found_with_what_its_people_ask() -> None:
    assert any("Why did he leave?" in piece.text for piece in index_of([STORY]).pieces)


def test_a_long_question_finds_a_page_by_what_they_share() -> None:
    """Its other words, which stand nowhere, count little against it."""
    question = (
        "Which wager had the Baron lost, and what else did people of other counties say about it afterwards?"
    )
    assert any("nine geese" in hit.piece.text for hit in index_of([STORY]).find(question)[:3])


def test_nothing_is_found_that_shares_no_word() -> None:
    page = f"{STORY}\n\n```\n—————\n```"
    index = index_of([page])
    hits = index.find("Which wager had the Baron lost?", about_page=True)
    assert all(hit.score > 0 for hit in hits)
    assert all(re.search(r"\w", piece.text) for piece in index.pieces), "a fence is no piece"


def test_a_question_behind_a_page_is_no_part_of_it() -> None:
    """Asked again, it would find itself."""
    index = index_of([f"{STORY}\n\nWhat had the Baron lost?"])
    assert all("What had" not in piece.text for piece in index.pieces)


def test_a_page_that_shares_little_is_found_only_by_a_question_that_is_about_it() -> None:
    index = index_of([STORY])
    question = "Which dogs bark loudly?"
    assert index.find(question) == []
    assert index.find(question, about_page=True)


@given(st.text(max_size=1000))
def test_nothing_that_is_told_is_lost_and_no_piece_is_long(text: str) -> None:
    told = text.replace("?", "")
    found = [piece for piece in pieces_of(told) if "\uff1f" not in told and "\u061f" not in told]
    if found:
        assert set("".join(found)) <= set(told) | {" "}
    assert all(len(piece) <= PIECE_CHARACTERS for piece in found)


@given(
    st.lists(st.text(alphabet="ab ?.我", max_size=12), max_size=12), st.text(alphabet="ab ?我", max_size=12)
)
def test_scores_are_shares_and_fall(said: list[str], question: str) -> None:
    scores = [hit.score for hit in index_of(said).find(question)]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 2 + 1e-9 for score in scores)


def test_many_dots_are_read_in_no_time() -> None:
    """Whatever is pasted is taken in; each dot looked at from each of 100,000 would take minutes."""
    said = ["." * 100_000 + "x My dog is called Rexo."]
    assert index_of(said).find("What is my dog called?")[0].piece.text.endswith("Rexo.")


def test_a_short_story_is_found_though_each_word_of_the_question_stands_in_many_pieces() -> None:
    who, where, what = (
        [first + last for first in firsts for last in ("amo", "enu", "ira", "otu", "uza")]
        for firsts in (
            ("Bal", "Dor", "Fen", "Gul", "Hir"),
            ("Jor", "Kel", "Lum", "Mab", "Nis"),
            ("pav", "ror", "sel", "tun", "vim"),
        )
    )
    told = [
        f"In the evening {who[at % 25]} went to {where[at // 8]} with a bag, some bread and a lantern,"
        f" and all that his old friends say of it is that he was afraid of {what[at * 7 % 25]}."
        for at in range(200)
    ]
    index = index_of([" ".join(told)])
    hits = index.find(f"Was {who[83 % 25]} afraid of the {what[83 * 7 % 25]} of {where[83 // 8]}?")
    assert hits[0].piece.text == told[83]
    assert not index.find("What do you say to your friends when they come home tired in the evening?")


def test_a_word_that_is_rare_in_the_language_says_more_than_a_common_one() -> None:
    """Both stand in the page once."""
    talk = "They went to the old house by the river, and all of them had a good time there. " * 40
    page = f"{talk}And today all was well. {talk}She had her sunbonnet in the end. {talk}"
    asked = ("Where is the sunbonnet?", "Where is the bus today?")
    assert [bool(index_of([page]).find(one)) for one in asked] == [True, False]
    alike = Index(lambda text: float(len(text.split())))
    alike.add(0, page, True)
    assert not alike.find(asked[0]), "it is the rarity that tells"


def test_a_page_that_begins_without_words_is_asked_as_another_is() -> None:
    page = STORY + STORY
    for question in ("What happened to the Baron of Tull?", "What do you do in the evening?"):
        plain, ruled = (index_of([one]).find(question) for one in (page, "=-" * 2500 + "\n" + page))
        assert bool(plain) == bool(ruled)
