"""What a person is told of the room in the memory."""

from dataclasses import replace

from scripted import SESSION

from h2o_chat.chat.conversation.remarks import longer_than


def test_a_single_token_is_no_tokens() -> None:
    small = replace(SESSION, budget=3, recent=1, sinks=0)
    (one,) = longer_than(5, small)
    (two,) = longer_than(5, replace(small, recent=2))
    assert "the newest token and the most important words stay" in one.message
    assert "about the newest 2 tokens and the most important words stay" in two.message


def test_no_budget_beyond_the_window_is_advised() -> None:
    (note,) = longer_than(400, replace(SESSION, budget=200))
    assert "With a budget of 500 none of it" in note.hint
    (note,) = longer_than(400, replace(SESSION, budget=300))
    assert "With a budget" not in note.hint
    assert "512 tokens" in note.hint
