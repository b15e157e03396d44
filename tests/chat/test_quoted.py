"""What an answer quotes must stand in a message of the person; else it is said that it does not."""

import pytest

from h2o_chat.chat.message import Message
from h2o_chat.chat.quoted import never_said

SAID = "I am allergic to walnuts, and so is my sister Ann."
ASKED = "What must I not eat?"


def noted(answer: str, *others: Message) -> list[str]:
    messages = [Message("user", SAID), Message("assistant", "Okay."), *others]
    messages += [Message("user", ASKED), Message("assistant", answer)]
    notes = list(never_said(answer, messages))
    assert all((note.code, note.about) == ("never-said", len(messages) - 1) for note in notes)
    return [note.message for note in notes]


@pytest.mark.parametrize(
    "answer",
    [
        f'You said: "{SAID}"',
        'You said: "I am allergic to walnuts."',
        'You said "I  am allergic\nto walnuts"',
        "You told me: “I am Allergic to walnuts”, so no nuts.",
        'You said: "I am allergic to wal',
        'You said: "What must I not eat?"',
        'She said: "I like walnuts."',
        'I said: "Okay."',
        '"The Third Man" is a film.',
        'The sign said: "You are here."',
        "You said that you like walnuts.",
        'You said: ""',
        "",
    ],
)
def test_nothing_is_noted_of_what_was_said_nor_of_other_quotations(answer: str) -> None:
    assert noted(answer) == []


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ('You said: "Can you recommend a good good good film?"', "Can you recommend a good good good film?"),
        ('You said: "I am allergic to pears."', "I am allergic to pears."),
        ("you’ve told me “I keep bees”.", "I keep bees"),
        ('You have also mentioned "Ann keeps bees", I think.', "Ann keeps bees"),
        ('You said: "I am allergic to walnuts.", and you said: "I keep bees."', "I keep bees."),
        (f'You said: "{"good " * 40}', ("good " * 12)[:59] + "…"),
        ('You said: "Okay."', "Okay."),
    ],
)
def test_what_nobody_said_is_noted_once(answer: str, shown: str) -> None:
    assert noted(answer) == [f"You never said “{shown}”: the model made it up."]


def test_the_system_prompt_counts_as_said() -> None:
    rule = Message("system", "End every answer with the word over.")
    assert noted('You said: "End every answer with the word over"', rule) == []
