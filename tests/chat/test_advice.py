"""Notes about the room in the memory."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from scripted import SESSION

from h2o_chat.chat.conversation.remarks import longer_than, more_room


def test_a_single_token_is_no_tokens() -> None:
    small = replace(SESSION, budget=3, recent=1, sinks=0)
    (one,) = longer_than(5, small, 0)
    (two,) = longer_than(5, replace(small, recent=2), 0)
    assert "; kept: the newest token and the most important words." in one.message
    assert "; kept: about the newest 2 tokens and the most important words." in two.message
    (none,) = longer_than(5, replace(small, budget=1, recent=0, sinks=1), 0)
    assert "; kept: what the policy chooses." in none.message


def test_no_budget_beyond_the_window_is_advised() -> None:
    (note,) = longer_than(400, replace(SESSION, budget=100), 0)
    assert "With 512 slots none of it" in note.hint
    (note,) = longer_than(400, replace(SESSION, budget=100), 200)
    assert "none of it" not in note.hint, "with what was said before it is too much"
    (note,) = longer_than(600, replace(SESSION, budget=300), 0)
    assert "none of it" not in note.hint
    assert "512 tokens" in note.hint


@given(
    budget=st.integers(1, 4096), tokens=st.integers(0, 100_000), window=st.sampled_from([512, 4096, 131_072])
)
def test_more_room_holds_what_was_said_or_the_window(budget: int, tokens: int, window: int) -> None:
    more = more_room(replace(SESSION, budget=budget, window=window), tokens)
    assert more == window or more >= max(2 * budget, tokens + budget // 2)
    assert more <= window
    assert more == window or more.bit_count() == 1
