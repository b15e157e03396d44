"""What a short question leaves out."""

import pytest

from h2o_chat.base.config import Settings
from h2o_chat.chat.following import followed
from h2o_chat.chat.message import Message
from h2o_chat.chat.recalling import Recall
from h2o_chat.events.events import Note

BROTHER = "What is my brother called?"


@pytest.mark.parametrize(
    ("question", "before", "whole"),
    [
        ("And how old is he?", BROTHER, "And how old is my brother?"),
        ("Where does he live?", BROTHER, "Where does my brother live?"),
        ("What is his job?", BROTHER, "What is my brother's job?"),
        ("And my sister?", BROTHER, "What is my sister called?"),
        ("What about my older sister?", BROTHER, "What is my older sister called?"),
        ("And what colour is it?", "Where is my old car?", "And what colour is my old car?"),
    ],
)
def test_what_is_left_out_is_taken_from_the_question_before(question: str, before: str, whole: str) -> None:
    assert followed(question, before) == whole


@pytest.mark.parametrize(
    ("question", "before"),
    [
        ("What time is it?", BROTHER),
        ("What should I give him?", BROTHER),
        ("How old is my aunt?", BROTHER),
        ("And how old is he?", "Who wrote Hamlet?"),
        ("And how old is he?", ""),
        ("How are you?", BROTHER),
        ("Should I call him?", BROTHER),
    ],
)
def test_what_leaves_nothing_out_stays_as_it_is(question: str, before: str) -> None:
    assert followed(question, before) == question


class Nothing:
    """An engine that holds nothing."""

    def held(self, positions: range) -> float:
        return 0.0


def asked(*texts: str) -> tuple[str, list[str]]:
    """What is told again with the last of these, and the codes of the notes."""
    notes: list[Note] = []
    messages = [Message("user", text, at, at) for at, text in enumerate(texts[:-1])]
    again, _ = Recall(notes).before(texts[-1], messages, Nothing(), Settings())
    return again.words if again else "", [note.code for note in notes]


def test_a_short_question_has_told_again_what_it_means() -> None:
    told = ("My brother Tom is 31.", "My sister Ida is 40.", "I like rain.")
    assert asked(*told, BROTHER, "And how old is he?") == (told[0], ["recalled"])
    assert asked(*told, BROTHER, "And how old is he?", "And my sister?") == (told[1], ["recalled"])
    assert asked("My sister Ida is 40.", BROTHER, "And how old is he?") == ("", ["gone"])
    assert asked(*told, "And how old is he?") == ("", [])
