"""An answer that says the same over and over is ended, where nobody asked for so long a one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_chat.base.config import SCREEN_TOKENS, Sampling
from h2o_chat.chat.conversation import advice
from h2o_chat.chat.conversation.loops import (
    ENOUGH_TIMES,
    ENOUGH_TOKENS,
    EVERY_TOKENS,
    LONGEST_TOKENS,
    Repeating,
)
from h2o_chat.events.events import Turn

TURN = Turn("", "stopped", 1, 300, 0, 0, 301, 8, 293, 0)


def heard(tokens: list[int]) -> int:
    """After how many tokens it is known to repeat itself; 0: not by its end."""
    repeating = Repeating()
    for count, token in enumerate(tokens, 1):
        repeating.hear(token)
        if repeating.tokens:
            return count
    return 0


@given(st.lists(st.integers(0, 9), max_size=300), st.lists(st.integers(0, 9), min_size=1, max_size=64))
def test_a_loop_is_known_soon_after_it_is_long_enough(before: list[int], loop: list[int]) -> None:
    at = heard([*before, *loop * 2 * ENOUGH_TOKENS])
    assert 0 < at <= len(before) + max(ENOUGH_TOKENS, len(loop) * ENOUGH_TIMES) + EVERY_TOKENS


@pytest.mark.parametrize("length", [1, 7, LONGEST_TOKENS])
def test_what_is_repeated_is_counted(length: int) -> None:
    repeating = Repeating()
    for token in [*range(length)] * (ENOUGH_TOKENS // length + ENOUGH_TIMES):
        repeating.hear(token)
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


def test_the_note_says_what_can_be_done() -> None:
    asked = Sampling(max_tokens=SCREEN_TOKENS)
    (note,) = advice.at_limit(TURN, asked, 7)
    assert (note.code, note.message) == (
        "answer-repeats",
        "The answer began to repeat the same 7 tokens: it was ended.",
    )
    assert "same token" in next(advice.at_limit(TURN, asked, 1)).message
    assert not [*advice.at_limit(TURN, asked, 0)], "somebody stopped it"
    assert not [*advice.at_limit(replace(TURN, finish="eos"), asked, 7)]
