"""A loop is known by the words said, and what is meant to repeat is none."""

from collections.abc import Sequence
from typing import Any

import pytest
from talk import chat_of

from h2o_chat.base.config import SCREEN_TOKENS, Sampling
from h2o_chat.chat.conversation.loops import BEGIN, END, MOST_TOKENS, OF, loop_in
from h2o_chat.chat.conversation.message import Message
from h2o_chat.events.events import Note

THINGS = (
    *("apple", "boat", "candle", "drum", "eagle", "flute", "garden", "hammer", "island", "jacket"),
    *("kettle", "ladder", "mirror", "needle", "orchard", "pepper", "quilt", "river", "spoon", "tower"),
)
ROWS = ["Paris | France | 2.1", "Rome | Italy | 2.8", "Madrid | Spain | 3.3", "Oslo | Norway | 0.7"]
LOOP = "I'm doing great, thank you for asking, and I hope you are well too."
FRESH = (
    "Bees dance in the dark to tell each other the way.",
    "A tram goes up the hill every ten minutes until midnight.",
    "My favourite soup has lentils, lemon and a little cumin in it.",
    "The moon pulls the sea, and so the tide comes twice a day.",
)

Said = Sequence[tuple[str, str]]


def messages(said: Said) -> list[Message]:
    return [
        Message(role, text) for pair in said for role, text in zip(("user", "assistant"), pair, strict=True)
    ]


def loops(said: Said) -> list[bool]:
    """Before each message, and before one that follows: whether something is done."""
    asked = [*(message for message, _ in said), "And what else?"]
    return [loop_in(messages(said[:at]), text) is not None for at, text in enumerate(asked)]


def with_refrain(thing: str) -> Said:
    refrain = f"Oh {thing}, my {thing},\nstay with me all day,\noh {thing}, my {thing},\nnever go away!"
    verse = f"The {thing} was {{0}}\nin the morning light,\nand {{0}} it was still\nin the deep of night.\n"
    verses = [verse.format(word) for word in ("old", "small", "bright", "lost")]
    return [
        (f"Sing verse {at} of a song about a {thing}.", verse + refrain) for at, verse in enumerate(verses)
    ]


def table(thing: str) -> Said:
    head = f"| City | Country | Millions of {thing}s |\n|---|---|---|"
    rows = [f"| {row} |" for row in ROWS]
    return [
        (f"Add {row.split()[0]} to the table of {thing}s.", "\n".join([head, *rows[: at + 1]]))
        for at, row in enumerate(ROWS)
    ]


def code(thing: str) -> Said:
    told, checked = "    # counts them\n", "    assert items\n"
    steps = {
        "counted": "",
        "explained": told,
        "checked": told + checked,
        "told": "    # counts all\n" + checked,
    }
    whole = f"```python\ndef count_{thing}(items):\n{{}}    return len(items)\n```\nThat is all."
    return [(f"Write it so that the {thing} is {word}.", whole.format(step)) for word, step in steps.items()]


def equal_lines(thing: str) -> Said:
    line = f"I will not throw the {thing}."
    return [(f"Write {count} times: {line}", "\n".join([line] * count)) for count in (10, 20, 30)]


def asked_again(thing: str) -> Said:
    told = f"You said that your {thing} is in the hall, behind the old wooden door."
    return [(f"Where is my {thing}?", told)] * 4


def letter(thing: str, *changed: str) -> str:
    about = (
        f"the {thing} that {word} is {at} and needs no more than {at + 1}" for at, word in enumerate(THINGS)
    )
    return f"Dear all, I write because of {', '.join(about)}. {' '.join(changed)} Yours, Sam"


def told_anew(thing: str) -> Said:
    changes = ("", "Please.", "Please answer.", "Please answer soon.", "Answer soon.")
    return [(f"Make it {len(change)} letters longer.", letter(thing, change)) for change in changes]


def proofread(thing: str) -> Said:
    said = [letter(f"{thing} {at}", "It are all.") for at in range(5)]
    return [(f"Correct this: {text}", text.replace("It are", "That is")) for text in said]


@pytest.mark.parametrize("thing", THINGS)
@pytest.mark.parametrize("meant", [with_refrain, table, code, equal_lines, asked_again, told_anew, proofread])
def test_what_is_meant_to_repeat_is_no_loop(meant: object, thing: str) -> None:
    assert callable(meant)
    assert not any(loops(meant(thing)))


def test_calls_of_a_tool_are_no_loop() -> None:
    said = list[Message]()
    for thing in THINGS:
        call = f'<tool_call>\n{{"name": "price_of", "arguments": {{"thing": "{thing}"}}}}\n</tool_call>'
        said += messages([(f"What does a {thing} cost?", call)])
        assert loop_in([*said, Message("tool", "3"), Message("assistant", "Three.")], "And a bee?") is None
        said += [Message("tool", "3"), Message("assistant", f"A {thing} costs three.")]


def test_different_answers_are_no_loop() -> None:
    said = [
        (f"Tell me something about a {thing}.", f"{FRESH[at % 4][:20]} {thing} {at} {at + 1} {at + 2}")
        for at, thing in enumerate(THINGS)
    ]
    assert not any(loops(said))


@pytest.mark.parametrize("answer", ["Yes, it is.", "No, no, no."])
def test_yes_and_no_answer_many_questions(answer: str) -> None:
    assert not any(loops([(f"Is {at} a number?", answer) for at in range(20)]))


def test_one_sentence_to_whatever_is_said_is_a_loop_from_the_third_repetition_on() -> None:
    said = [(f"Tell me about the {thing}.", LOOP) for thing in THINGS]
    found = loops(said)
    assert found == [False] * (BEGIN + 1) + [True] * (len(found) - BEGIN - 1)
    first, second = (loop_in(messages(said[:count]), "What now?") for count in (BEGIN + 1, BEGIN + 2))
    assert first is not None
    assert second is not None
    assert (first.begins, second.begins) == (True, False)
    assert first.others == (LOOP,)


@pytest.mark.parametrize(
    "answer",
    [
        # A model that is held off from equal answers puts a word of the message into one sentence.
        "I'm so glad you're thinking of the {}. I'm so glad you're here, and so glad that we can talk.",
        letter("bee"),
        # SmolLM2 said nothing else from its 1,279th answer on: such an answer has a single gram.
        "No, no, no, no, no, no, no,",
    ],
)
def test_one_answer_to_whatever_is_said_is_a_loop(answer: str) -> None:
    assert loops([(f"Tell me about the {thing}.", answer.format(thing)) for thing in THINGS])[-1]


def test_a_model_that_says_what_it_is_asked_is_in_a_loop() -> None:
    assert loops([(text, text.rstrip(".!") + "!") for text in FRESH])[-1]


def test_a_conversation_that_falls_silent_is_in_a_loop() -> None:
    said = [(f"Tell me of {thing}s.", "" if at else "They are old.") for at, thing in enumerate(THINGS[:7])]
    assert loops(said)[: BEGIN + 2] == [False] * (BEGIN + 2)
    assert loops(said)[BEGIN + 2]


def test_it_ends_after_so_many_answers_that_do_not_repeat_and_begins_again_with_one_that_does() -> None:
    def fresh(count: int) -> Said:
        return [
            (f"And {thing} {count}?", " ".join(f"{thing}{at}{count}" for at in range(12))) for thing in THINGS
        ]

    said = [(f"Tell me about the {thing}.", LOOP) for thing in THINGS[:OF]]
    said += [*fresh(1), *fresh(2)]
    found = loops(said)
    assert found[OF + END - 1]
    assert not any(found[OF + END :])
    again = [*said, ("And now?", said[-1][1])]
    assert loops(again)[-1]


def test_an_answer_to_the_same_message_may_come_again() -> None:
    said = [(f"Tell me about the {thing}.", LOOP) for thing in THINGS[:OF]]
    asked = loop_in(messages(said), f"tell me  about the {THINGS[0]}.")
    assert asked is not None
    assert asked.others == (LOOP,), "others were told it too"
    alone = loop_in(messages([(THINGS[0], FRESH[0]), *said]), THINGS[0])
    assert alone is not None
    assert alone.others == (LOOP,)


def test_an_answer_in_a_loop_is_short_where_nobody_chose_its_length(loaded: Any) -> None:
    """Barred from what it would repeat, SmolLM2 babbled for 3,000 tokens in the first minute."""
    found = {}
    for most in (SCREEN_TOKENS, 700):
        chat = chat_of(loaded, budget=64)
        chat.messages += messages([(f"How is the {thing}?", LOOP) for thing in THINGS[:4]])
        drawn = Sampling(temperature=1.5, top_p=1.0, min_p=0.0, max_tokens=most, ignore_eos=True)
        events = list(chat.send("And what else?", drawn))
        found[most] = events[-1].new_tokens
        told = [one.code for one in events if isinstance(one, Note)]
        assert ("answer-limit" in told) == (most == SCREEN_TOKENS)
    assert found == {SCREEN_TOKENS: MOST_TOKENS, 700: 700}
