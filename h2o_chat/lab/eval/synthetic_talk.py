"""Made-up conversations: facts that a person tells, talk in between, questions, and which answers are right.

Values are drawn from spaces too large to be known by heart. `{v}` is the value of a fact.
"""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass


def _words(text: str) -> list[str]:
    return text.split()


# Sentences the model reads often; what a person tells of himself, and how he asks for it.
FACTS: dict[str, tuple[str, str, str]] = {
    "name": ("My name is {v}.", "What is my name?", "name"),
    "town": ("I live in {v}.", "Where do I live?", "name"),
    "dog": ("My dog is called {v}.", "What is my dog called?", "name"),
    "cat": ("The name of my cat is {v}.", "What is the name of my cat?", "name"),
    "sister": ("My sister is called {v}.", "What is my sister called?", "name"),
    "boss": ("My boss's name is {v}.", "What is my boss's name?", "name"),
    "car": ("My car is {v}.", "What colour is my car?", "colour"),
    "bicycle": ("The colour of my bicycle is {v}.", "What colour is my bicycle?", "colour"),
    "door code": ("My door code is {v}.", "What is my door code?", "code"),
    "password": ("My wifi password is {v}.", "What is my wifi password?", "code"),
    "locker": ("My locker number is {v}.", "What is my locker number?", "number"),
    "room": ("My room number is {v}.", "What is my room number?", "number"),
    "dentist": ("My dentist appointment is on {v}.", "When is my dentist appointment?", "daytime"),
    "keys": ("My keys are {v}.", "Where are my keys?", "place"),
}
DISTRACTORS = {
    "name": "The dog of my neighbour is called {v}.",
    "code": "The code of the office printer is {v}.",
    "number": "My friend waited in room number {v}.",
    "daytime": "The match on television begins on {v}.",
}
"""Facts of the same kinds that are never asked for."""
CORRECTED = "Sorry, I got that wrong. {told}"

_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
_COLOURS = _words("red blue green yellow orange purple pink brown black white grey silver")
_SHADES = ("dark", "light", "bright", "pale", "deep")
_DAYS = _words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
_WHICH = _words("old big small new round wooden broken left right brown green red")
_SPOTS = ("in the {} drawer", "under the {} table", "on the {} shelf", "behind the {} door")


def _name(rng: random.Random) -> str:
    return "".join(rng.choices(_SYLLABLES, k=rng.choice((2, 3)))).capitalize()


def _code(rng: random.Random) -> str:
    return "".join(rng.choices("ABCDEFGHKLMNPRSTUVWXYZ23456789", k=5))


VALUES: dict[str, Callable[[random.Random], str]] = {
    "name": _name,
    "code": _code,
    "number": lambda rng: str(rng.randrange(100, 10000)),
    "colour": lambda rng: f"{rng.choice(_SHADES)} {rng.choice(_COLOURS)}",
    "daytime": lambda rng: f"{rng.choice(_DAYS)} at {rng.randint(1, 12)} {rng.choice(('am', 'pm'))}",
    "place": lambda rng: rng.choice(_SPOTS).format(rng.choice(_WHICH)),
}

_TOPICS = _words(
    "soup bread tea films trains gardens bicycles music rain snow holidays football cooking painting birds"
    " rivers castles museums swimming chess coffee boats mountains markets books photographs"
)
# Small talk, then errands. {t} and {u} are topics, {p} a place, {n} a number, {d} a day, {h} an hour: most of
# them would be facts, were they asked for.
_SAID = (
    "I have been thinking about {t} lately.",
    "Do you like {t}?",
    "Some people say that {t} and {u} go well together.",
    "Yesterday a man on the bus talked about {t} for an hour.",
    "I would rather have {t} than {u}.",
    "When the weather is bad I think of {t}.",
    "There was a long article about {t} in the paper.",
    "What do you think of {t}?",
    "I watched something about {t} last night and fell asleep.",
    "My friends never talk about anything but {t}.",
    "I want to book a table for {n} at {p}.",
    "At {h} on {d}, please.",
    "Yes, that is right.",
    "Can you find me a bus to {p} on {d}?",
    "How is the weather in {p} on {d}?",
    "I am looking for a hotel in {p} for {n} nights.",
    "Find me a film about {t} for {d}.",
    "Play me something about {t}.",
    "How much would a ticket to {p} be?",
    "No, thanks. That is all for now.",
    "I need a doctor near {p}.",
    "What is the address of the museum in {p}?",
)


def between(rng: random.Random) -> Iterator[str]:
    """Messages between the facts, without end."""
    while True:
        filled = {
            "t": rng.choice(_TOPICS),
            "u": rng.choice(_TOPICS),
            "p": _name(rng),
            "n": rng.randint(2, 90),
            "d": rng.choice(_DAYS),
            "h": f"{rng.randint(1, 12)} {rng.choice(('am', 'pm'))}",
        }
        yield rng.choice(_SAID).format(**filled)


_NOT_TOLD = re.compile(r"(?:\bnot\b|\bnever\b|n't\b).*\b(?:told|tell|mentioned|know)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Question:
    text: str
    distance: int
    """Tokens between the telling and the question."""
    expected: str | None
    """The value; None where it was never told, and the right answer says so."""
    stale: str | None = None
    """The value before a correction: an answer with it is wrong."""
    kind: str = ""


def is_right(question: Question, answer: str) -> bool:
    """True if an answer holds the value and not the one it replaced, or says that it was not told."""
    if question.expected is None:
        return _NOT_TOLD.search(answer) is not None
    if question.stale and holds(answer, question.stale):
        return False
    return holds(answer, question.expected)


def holds(answer: str, value: str) -> bool:
    """True if the value stands in the answer as a whole: 14 is not in 149."""
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", answer, re.IGNORECASE) is not None
