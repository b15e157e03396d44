"""An answer that says the same over and over is ended, where nobody asked for so long a one."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from h2o_chat.base.config import SCREEN_TOKENS, Sampling
from h2o_chat.chat.conversation import remarks
from h2o_chat.chat.conversation.loops import (
    ENOUGH_TIMES,
    ENOUGH_TOKENS,
    EVERY_TOKENS,
    LONGEST_TOKENS,
    PIECE_WORDS,
    TIMES,
    Repeating,
    repeated_words,
)
from h2o_chat.chat.templates.thinking import Thinking
from h2o_chat.events.events import Turn

TURN = Turn("", "stopped", 1, 300, 0, 0, 301, 8, 293, 0)


def heard(tokens: list[int]) -> int:
    """After how many tokens it is known to repeat itself; 0: not by its end."""
    repeating = Repeating("")
    for count, token in enumerate(tokens, 1):
        repeating.note_token(token, "")
        if repeating.tokens:
            return count
    return 0


@given(st.lists(st.integers(0, 9), max_size=300), st.lists(st.integers(0, 9), min_size=1, max_size=64))
def test_a_loop_is_known_soon_after_it_is_long_enough(before: list[int], loop: list[int]) -> None:
    at = heard([*before, *loop * 2 * ENOUGH_TOKENS])
    assert 0 < at <= len(before) + max(ENOUGH_TOKENS, len(loop) * ENOUGH_TIMES) + EVERY_TOKENS


@pytest.mark.parametrize("length", [1, 7, LONGEST_TOKENS])
def test_what_is_repeated_is_counted(length: int) -> None:
    repeating = Repeating("")
    for token in [*range(length)] * (ENOUGH_TOKENS // length + ENOUGH_TIMES):
        repeating.note_token(token, "")
    assert repeating.tokens == length


@pytest.mark.parametrize(
    "tokens",
    [
        [1] * (ENOUGH_TOKENS - 1),
        [*range(2000)],
        [*range(LONGEST_TOKENS + 1)] * 20,
        [token for line in range(100) for token in (1, 2, 3, 100 + line)],  # a table
        ([7] * 200 + [8]) * 10,
        [*range(30)] * (ENOUGH_TIMES - 1),  # rows that are alike
        [*range(LONGEST_TOKENS)] * (ENOUGH_TIMES - 1),
    ],
)
def test_what_is_no_loop_goes_on(tokens: list[int]) -> None:
    assert heard(tokens) == 0


WORD = st.sampled_from(["a", "am", "be", "so", "sorry", "glad", "the", "you", "7", "naïve", "ok"])


def test_a_piece_of_several_sentences_is_noticed() -> None:
    """A story went on for 2,500 tokens with the same three sentences of 66 words."""
    piece = " ".join(f"word{number}" for number in range(66))
    assert repeated_words(f"Once. {' '.join([piece] * 4)}", "Tell me a story.") == 66


@given(st.lists(WORD, max_size=40), st.lists(WORD, min_size=3, max_size=64), st.integers(0, 63))
def test_words_said_four_times_are_noticed(before: list[str], piece: list[str], more: int) -> None:
    assume(len(set(piece)) >= PIECE_WORDS.start)
    said = [*before, *piece * TIMES, *piece[: more % len(piece)]]
    found = repeated_words(", ".join(said), "How are you?")
    assert 0 < found <= len(piece)
    assert said[-found * TIMES :] == said[-found:] * TIMES


@given(st.lists(WORD, min_size=3, max_size=20), st.integers(0, 20))
def test_who_asks_for_words_again_and_again_gets_them(piece: list[str], cut: int) -> None:
    asked = f"Please say twenty times: {' '.join(piece)}!"
    assert not repeated_words("\n".join(f'"{" ".join(piece)}"' for _ in range(20))[: -cut or None], asked)


@pytest.mark.parametrize(
    "answer",
    [
        "I'm so sorry, I'm so sorry, I'm so sorry!",
        "Let it snow! Let it snow! Let it snow!",
        "Location, location, location, location, location.",
        "No, no, no, no, no, no, no, no!",
        "0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1",
        "| 1 | red | big |\n| 2 | red | big |\n| 3 | red | big |\n| 4 | red | big |\n| 5 | red | big |",
        "We sing to the moon.\nWe sing to the sea.\n" * 3,
        "".join(f'    names.append("name {at}")\n' for at in range(20)),
        "I'm so glad you asked. " * 4 + "Now, to your question: the capital of France is Paris.",
    ],
)
def test_what_may_be_meant_is_no_repetition(answer: str) -> None:
    assert not repeated_words(answer, "What is new?")


def test_the_note_says_what_can_be_done() -> None:
    asked = Sampling(max_tokens=SCREEN_TOKENS)
    repeating = Repeating("")
    assert not [*remarks.at_limit(TURN, asked, asked.max_tokens, repeating, Thinking())], (
        "somebody stopped it"
    )
    repeating.ends_answer = True
    for tokens, words, told in (
        (7, 0, "the same 7 tokens"),
        (1, 0, "the same token"),
        (9, 4, "the same 4 words"),
    ):
        repeating.tokens, repeating.words = tokens, words
        (note,) = remarks.at_limit(TURN, asked, asked.max_tokens, repeating, Thinking())
        assert note.code == "answer-repeats"
        assert told in note.message
    assert not [*remarks.at_limit(replace(TURN, finish="eos"), asked, None, repeating, Thinking())]
