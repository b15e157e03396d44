"""Which tokens a message is: the rules in one place, and the same whoever asks; where its words lie."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_chat.chat.conversation.message import Message
from h2o_chat.chat.conversation.spans import (
    BLOCK_CHARACTERS,
    Places,
    Spans,
    coming_span,
    own_ids,
    prompt_spans,
    texts_of,
    tokens_of,
    tokens_read,
)
from h2o_chat.chat.memory.tokens import Tokens
from h2o_chat.events.events import Event, Prompt, Said, Token, Turn


def prompt(first: int, last: int, system: int = 0, texts: tuple[str, ...] = ()) -> Prompt:
    return Prompt(last - first + 1, first, last, 1, 1.0, system, list(texts))


def turn(finish: str) -> Turn:
    return Turn("", finish, 1, 1, 0.0, 0.0, 0, 0, 0, 0.0)  # type: ignore[arg-type]


def places(*events: Event) -> list[tuple[int, str, int, int]]:
    spans = Spans()
    for event in events:
        spans.add(event)
    return [(one.index, one.role, one.first, one.last) for one in spans.all]


def test_a_prompt_begins_with_the_end_of_the_answer_before_and_the_system_prompt() -> None:
    assert prompt_spans(prompt(0, 9, system=4), 0) == (range(4), range(4, 10))
    assert prompt_spans(prompt(20, 29), 21) == (range(21, 21), range(21, 30))
    assert prompt_spans(prompt(0, 2, system=4), 0) == (range(3), range(3, 3)), "stopped in the system prompt"
    assert coming_span(before=0, ids=10, system=4) == prompt_spans(prompt(0, 9, system=4), 0)[1]


def test_texts_are_those_of_the_tokens_asked_for() -> None:
    read = prompt(5, 8, texts=("a", "b", "c", "d"))
    assert texts_of(read, range(6, 8)) == ["b", "c"]
    assert not texts_of(read, range(4, 8)), "one of them came before"
    assert not texts_of(prompt(5, 8), range(6, 8)), "none were told"


def test_what_was_not_read_has_no_tokens_and_the_last_of_an_answer_waits() -> None:
    assert not tokens_of(Message("user", "Hi"))
    answer = tokens_of(Message("assistant", "Hello", 10, 14))
    assert (tokens_read(answer, 14), tokens_read(answer, 15), tokens_read(answer, 3)) == (4, 5, 0)


def test_own_ids_are_the_last_of_a_user_and_the_first_of_an_answer() -> None:
    ids = list(range(6))
    assert ids[own_ids(Message("user", "", 4, 7), len(ids))] == [2, 3, 4, 5]
    assert ids[own_ids(Message("assistant", "", 4, 7), len(ids))] == [0, 1, 2, 3]
    for role in ("user", "assistant"):
        assert ids[own_ids(Message(role, ""), len(ids))] == []


def test_events_place_messages_one_behind_the_other() -> None:
    answer: list[Event] = [Token(n, "x", n, 1.0) for n in range(10, 13)]
    first = [Said(1, "user", "Hi"), prompt(0, 9, system=4), *answer]
    one = [(0, "system", 0, 3), (1, "user", 4, 9), (2, "assistant", 10, 12)]
    assert places(*first) == one
    # The token at 12 is fed with the next prompt, and stays the answer's.
    more = [*first, turn("eos"), Said(3, "user", "And?"), prompt(12, 15)]
    assert places(*more) == [*one, (3, "user", 13, 15)]
    assert places(*more, Token(1, "x", 16, 1.0), turn("error")) == one, "the model went back"
    assert places(*first, turn("error")) == [], "with the first message the system prompt is gone, too"
    assert places(*more, Said(1, "user", "No")) == one[:1], "another branch"


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


@pytest.mark.parametrize("question", ["Who came by?", "Who?", "他叫什么？"])
def test_a_message_with_recalled_pieces_is_found_without_the_template(question: str) -> None:
    page = f"It rained all day. {'Nobody came by. ' * 80}"
    fed = f"{page}\n\nContext: Nobody came by.\n\nQuestion: {question}"
    template = ["<|im_start|>", "system\nYou are kind.", "<|im_end|>", "\n", "<|im_start|>", "user\n"]
    tokens = Tokens(0, [*template, fed, "<|im_end|>"])
    own = tokens.own(f"{page}\n\n{question}")
    assert tokens.text[own.start : own.stop] == fed
