"""What asks, with a question mark or without, is no fact; a greeting before it asks for nothing."""

import pytest

from h2o_chat.base.config import Settings
from h2o_chat.chat.asking import asks, question_of
from h2o_chat.chat.message import Message
from h2o_chat.chat.recalling import Recall
from h2o_chat.events.events import Note

FACT = "My cat is called Luna."
OTHERS = (
    "Tell me about trains.",
    "My dog is called Rexo.",
    "I think I will take a walk after work and buy some milk.",
)


class Nothing:
    """An engine that holds nothing."""

    def held(self, positions: range) -> float:
        return 0.0


def told_again(*texts: str) -> tuple[str, list[str]]:
    """What is told again with the last of these, and the codes of the notes."""
    notes: list[Note] = []
    messages = [Message("user", text, at, at) for at, text in enumerate(texts[:-1])]
    again, _ = Recall(notes).before(texts[-1], messages, Nothing(), Settings())
    return again.words if again else "", [note.code for note in notes]


@pytest.mark.parametrize(
    "request_",
    [
        "Please tell me what my cat is called.",
        "Tell me again what my cat is called, please.",
        "remind me what the name of my cat is",
        "Remind me of my cat's name.",
        "Can you tell me my cat's name.",
        "do you remember my cat's name",
        "I want to know what my cat is called.",
        "I'd like to know my cat's name.",
        "I forgot what my cat is called.",
        "I've forgotten what my cat is called, sorry.",
        "I can't remember my cat's name.",
        "i dont remember what my cat is called",
        "I was wondering what my cat is called.",
        "Hello Pocket, let me know what my cat is called!",
        "Thank you. And now tell me what my cat is called.",
        "what's my cats name",
        "whats my cat called",
        "what is the name of my cat",
    ],
)
def test_a_request_asks_and_is_no_fact(request_: str) -> None:
    assert told_again(FACT, *OTHERS, request_) == (FACT, ["recalled"])
    assert told_again(*OTHERS, request_) == ("", ["gone"]), "nobody told it"
    assert told_again(FACT, *OTHERS, request_, "What is my cat called?") == (FACT, ["recalled"])
    assert told_again(FACT, *OTHERS, request_, request_) == (FACT, ["recalled"])


@pytest.mark.parametrize(
    "greeting",
    [
        "Hello, ",
        "hello ",
        "Hi there, ",
        "Good morning Pocket, ",
        "Thank you very much, and ",
        "Sorry, I forgot: ",
        "One more question: ",
        "Hey bot... ",
        "By the way - ",
        "Bonjour, ",
        "",
    ],
)
def test_a_greeting_before_a_question_asks_for_nothing(greeting: str) -> None:
    assert told_again(FACT, *OTHERS, f"{greeting}what is my cat called?") == (FACT, ["recalled"])
    assert told_again(*OTHERS, f"{greeting}whats my cats name?") == ("", ["gone"])
    assert told_again("My cat is 7 years old.", *OTHERS, f"{greeting}what is my cat called?") == (
        "",
        ["gone"],
    )


@pytest.mark.parametrize(
    "text",
    [
        FACT,
        f"Remember that {FACT}",
        f"Please remember {FACT}",
        f"Hello, {FACT}",
        f"What is more, {FACT}",
        f"What's up, {FACT}",
        f"I forgot what my cat is called, so I looked: {FACT}",
        "Did I tell you my cat is called Luna.",
        "Luna is what my cat is called.",
        "Luna is what I called my cat, so do I call her.",
    ],
)
def test_a_fact_asks_for_nothing(text: str) -> None:
    assert told_again(*OTHERS, text) == ("", [])
    assert told_again(*OTHERS, text, *OTHERS, "What is my cat called?") == (text, ["recalled"])


@pytest.mark.parametrize(
    "text",
    [
        "Tell me about trains.",
        "I forgot my umbrella at work.",
        "What I like is my dog.",
        "What matters is my dog.",
        "Oslo is where I live.",
        "When I was born my father was 40.",
        "So do I.",
        "Let me tell you about my cat.",
        "Tell my sister that my cat is ill.",
    ],
)
def test_what_asks_for_nothing_of_ones_own_is_as_before(text: str) -> None:
    assert not asks(text)
    assert question_of(text) == ""
