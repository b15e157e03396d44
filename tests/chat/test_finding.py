"""What is found of what was said before, by words alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_chat.chat.asking import PIECE_CHARACTERS, asks, question_of
from h2o_chat.chat.finding import Finder, pieces

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
    "My name is Vikedo.",
    "The name of my cat is Vugufi.",
    "My room number is 1191.",
    "I live in Fimo.",
    "My boss's name is Lusova.",
]


def best(said: list[str], question: str) -> str | None:
    finder = Finder()
    for index, text in enumerate(said):
        finder.add(index, text)
    found = finder.find(question)
    return found[0].text if found and found[0].fits else None


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("What is my dog called?", "My dog is called Rexo."),
        ("What colour is my bicycle?", "The colour of my bicycle is dark grey."),
        ("What is my name?", "My name is Vikedo."),
        ("What is the name of my cat?", "The name of my cat is Vugufi."),
        ("What is my room number?", "My room number is 1191."),
        ("What is my boss's name?", "My boss's name is Lusova."),
        ("Where do I live?", "I live in Fimo."),
        ("What is my parrot called?", None),
        ("How are you today?", None),
        ("Do you like films?", None),
        ("What is the capital of France?", None),
        ("Which dog is called Fizade?", "The dog of my neighbour is called Fizade."),
        ("Who wrote Hamlet?", None),
    ],
)
def test_the_fact_is_found_among_its_neighbours(question: str, wanted: str | None) -> None:
    said = [*TALK, *FACTS, *TALK]
    assert best(said, question) == wanted


def test_of_two_that_fit_alike_the_later_is_meant() -> None:
    said = ["My locker number is 17.", *TALK * 4, "My locker number is 255.", *TALK]
    assert best(said, "What is my locker number?") == "My locker number is 255."


def test_scripts_without_spaces_are_found() -> None:
    said = ["我的狗叫小白。", "今天天气很好。", "我喜欢喝茶。", "我昨天去了北京。", "猫很可爱。", "你好。"]
    assert best(said, "我的狗叫什么？") == "我的狗叫小白。"


def test_what_asks_is_no_answer() -> None:
    assert best(["What is my dog called?", *TALK], "What is my dog called?") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("My name is Bob. What is yours?", ["My name is Bob.", "What is yours?"]),
        ("I met Dr. Smith at 3.5 pm on www.x.org!", ["I met Dr. Smith at 3.5 pm on www.x.org!"]),
        ("one\n\ntwo", ["one two"]),
        ("你好。我的狗叫小白。你呢？", ["你好。 我的狗叫小白。", "你呢？"]),
        ("", []),
    ],
)
def test_a_message_is_cut_into_what_is_told_and_what_is_asked(text: str, found: list[str]) -> None:
    assert [piece for piece, _ in pieces(text)] == found


def test_of_a_page_each_sentence_is_found_alone_with_what_goes_on_with_it() -> None:
    """Small models misread a fact among the sentences beside it."""
    fact, more = "My dog is called Rexo.", "He is three and sleeps all day."
    assert [piece for piece, _ in pieces(f"{fact} {more} I like tea.")] == [f"{fact} {more} I like tea."]
    page = f"{' '.join(TALK[:4])} {fact} {more} {' '.join(TALK[4:6])}"
    assert [piece for piece, _ in pieces(page)] == [*TALK[:4], f"{fact} {more}", *TALK[4:6]]


@pytest.mark.parametrize("text", ["Really?", "你呢？", "كيف حالك؟", 'He asked: "why?"', "Why?!", "τι;"])
def test_question_marks_of_other_scripts_ask(text: str) -> None:
    assert asks(text) is (text != "τι;")  # a Greek one is written like a semicolon, but is another letter
    assert question_of(f"Well. {text}") == (text if asks(text) else "")


@given(st.text(max_size=1000))
def test_nothing_is_lost_and_no_piece_is_long(text: str) -> None:
    found = [piece for piece, _ in pieces(text)]
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(len(piece) <= PIECE_CHARACTERS for piece in found)


@given(
    st.lists(st.text(alphabet="ab ?.我", max_size=12), max_size=12), st.text(alphabet="ab ?我", max_size=12)
)
def test_shares_are_shares_and_the_best_comes_first(said: list[str], question: str) -> None:
    finder = Finder()
    for index, text in enumerate(said):
        finder.add(index, text)
    found = finder.find(question)
    assert all(0 < one.words <= 1 + 1e-9 and 0 <= one.pairs <= 1 + 1e-9 for one in found)
    best = best_of(said, question)
    assert not found or best is None or found[0].text == best


def best_of(said: list[str], question: str) -> str | None:
    """A text that is said as it is asked, word for word, is found first: nothing fits better."""
    whole = question.replace("?", "").strip()
    return whole if whole and [*pieces(whole)] == [(whole, False)] and said[-1:] == [whole] else None


def test_a_question_costs_no_more_in_a_long_conversation() -> None:
    """Counted, not timed: pieces that only share words with everything are not looked at."""
    finder = Finder()
    for index in range(20_000):
        finder.add(index, f"My thing number {index} is what I think of {index % 7}.")
    finder.add(20_000, "My locker is broken.")
    looked_at = finder._with({"what", "is", "my", "locke"}, 1)
    assert looked_at == [20_000]


def test_many_dots_are_read_in_no_time() -> None:
    """Whatever is pasted is taken in; each dot looked at from each of 100,000 would take minutes."""
    finder = Finder()
    finder.add(0, "." * 100_000 + "x My dog is called Rexo.")
    assert finder.find("What is my dog called?")[0].text.endswith("Rexo.")
