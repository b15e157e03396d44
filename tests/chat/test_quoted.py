"""What an answer quotes must stand in a message of the person; else it is said that it does not."""

import pytest

from h2o_chat.chat.message import Message, Recalled
from h2o_chat.chat.quoted import never_said

SAID = "I am allergic to walnuts, and so is my sister Ann; don't forget: “carpe diem”, 9–5."
ASKED = "What must I not eat?"


def noted(answer: str, *others: Message) -> list[str]:
    """The quotations that are noted."""
    messages = [Message("user", SAID), Message("assistant", "Okay."), *others]
    messages += [Message("user", ASKED), Message("assistant", answer)]
    notes = list(never_said(answer, messages))
    assert all((note.code, note.about) == ("never-said", len(messages) - 1) for note in notes)
    return [note.message.partition("“")[2].partition("”")[0] for note in notes]


@pytest.mark.parametrize(
    "answer",
    [
        f'You said: "{SAID}"',
        'You said: "I am allergic to walnuts."',
        'You said "I  am allergic\nto walnuts"',
        "You told me: “I am Allergic to walnuts”, so no nuts.",
        'You said: "I am allergic to wal',
        'You said: "What must I not eat?"',
        "You said: \"Don’t forget: 'carpe diem', 9-5!!\"",
        'You said: "**I am allergic** to walnuts"',
        'You said: "I am allergic ... my sister Ann."',
        'You wrote: "... and so is my sister…"',
        'You said that "so is my sister", I think.',
    ],
)
def test_what_was_said_may_be_written_otherwise(answer: str) -> None:
    assert noted(answer) == []


@pytest.mark.parametrize(
    "answer",
    [
        "",
        'She said: "I like pears."',
        'I said: "Okay."',
        "You said that you like pears.",
        'You said: ""',
        '"The Third Man" is a film.',
        'The sign said: "You are here."',
        '"I heard what you said," she whispered. "I love you."',
        '"Is it true what you told me?" asked Tom.',
        'The film you mentioned is called "Vertigo".',
        'The word you wrote means "hello".',
        'As you mentioned, Einstein said "God does not play dice".',
        'As you said. "The Third Man" is a film.',
        'You said nothing about "pears".',
        'Instead of what you wrote, try: "Dear Sir".',
        'If you said "good morning" in French, they would laugh.',
        'print("you said", name)\nprint("bye")',
        'print(f"You said: {x}")\nprint("bye")',
        'You wrote 12" instead of 13" nails.',
    ],
)
def test_other_quotations_are_left_alone(answer: str) -> None:
    assert noted(answer) == []


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ('You said: "Can you recommend a good good good film?"', "Can you recommend a good good good film?"),
        ('You said: "I am allergic to pears."', "I am allergic to pears."),
        ("Yes, you’ve told me “I keep bees”.", "I keep bees"),
        ('I know: you have also mentioned "Ann keeps bees".', "Ann keeps bees"),
        ('You wrote: "I am."\nYou said: "I keep bees."', "I keep bees."),
        ('You said: "I am allergic ... to pears."', "I am allergic ... to pears."),
        (f'You said: "{"good " * 40}', ("good " * 12)[:59] + "…"),
        ('You said: "Okay."', "Okay."),
        ('You said: "aller"', "aller"),
        ('You said: "I am allergic to wal"', "I am allergic to wal"),
        ('You said: **"I keep bees."**', "I keep bees."),
    ],
)
def test_what_nobody_said_is_noted(answer: str, shown: str) -> None:
    assert noted(answer) == [shown]


def test_of_two_such_quotations_the_first_is_noted() -> None:
    assert noted('You said: "I keep bees." You said: "I keep cats."') == ["I keep bees."]


def test_the_system_prompt_and_what_was_told_again_count_as_said() -> None:
    rule = Message("system", "End every answer with the word over.")
    assert noted('You said: "End every answer with the word over"', rule) == []
    asked = Message("user", "What is my cat called?", recalled=Recalled(0, "My cat is Gize"))
    assert noted('You said: "I said before: My cat is Gize. What is my cat called?"', asked) == []
    assert noted('You said: "I said before: My cat is Gize."') == ["I said before: My cat is Gize."]
