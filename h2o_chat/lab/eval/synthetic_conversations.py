"""Long conversations in which facts are told, corrected and pinned, and each is asked for at the end."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from h2o_chat.chat.templates.chat_template import Template
from h2o_chat.lab.eval.recall_questions import Question
from h2o_chat.lab.eval.scripted_conversation import Script
from h2o_chat.lab.eval.synthetic_talk import (
    CORRECTED,
    DISTRACTORS,
    FACTS,
    NOTED,
    TEXT_DISTRACTORS,
    TEXT_FACTS,
    VALUES,
    between,
)

KINDS = Counter({"plain": 5, "pinned": 2, "corrected": 2, "not told": 1})
"""Facts of a conversation that are asked for."""
LAST = 0.9
"""Share of the conversation in which they are told."""


class Written(Protocol):
    """A conversation, written message by message: a `Script`, or `Answered`."""

    @property
    def tokens(self) -> int: ...
    def say(self, role: str, text: str) -> range: ...
    def pin(self, positions: range) -> None: ...
    def ask(self, text: str, recall: bool = False) -> None: ...


Talk = TypeVar("Talk", bound=Written)


def draw(
    tokenizer: Any, template: Template, tokens: int, seed: str, recall: bool = False
) -> tuple[Script, list[Question]]:
    """A conversation whose answers are made up too, see `write`."""
    return write(Script(tokenizer, template), tokens, seed, recall, template.name == "plain")


def write(
    script: Talk,
    tokens: int,
    seed: str,
    recall: bool = False,
    plain_text: bool = False,
) -> tuple[Talk, list[Question]]:
    """A conversation of about so many tokens, and the questions that its script asks, in order.

    Facts are told evenly over its first nine tenths, two of them corrected later on and two pinned as they
    are said; beside them stand distractors, values of the same kinds that nobody asks for. With
    a template for text alone all is text, and facts are keys and numbers.

    Args:
        tokens: 0 for the same facts in the same order with nothing in between.
        recall: all questions are asked once more at the end, with recall.
        plain_text: for a model that knows text alone.
    """
    known, others = (TEXT_FACTS, TEXT_DISTRACTORS) if plain_text else (FACTS, DISTRACTORS)
    rng, talk = random.Random(f"{seed} facts"), between(random.Random(f"{seed} talk"))
    kinds = dict(zip(rng.sample(sorted(known), KINDS.total()), KINDS.elements(), strict=True))
    events: list[tuple[float, str, str]] = []  # when, fact or nothing, what is said
    expected, stale = {}, {}
    for fact, kind in kinds.items():
        tell, _, space = known[fact]
        if kind == "not told":
            continue
        value, when = VALUES[space](rng), rng.uniform(0, LAST)
        if kind == "corrected":
            stale[fact] = value
            events.append((when, fact, tell.format(v=value)))
            while value == stale[fact]:
                value = VALUES[space](rng)
            when = rng.uniform(when, LAST)
            events.append((when, fact, CORRECTED.format(told=tell.format(v=value))))
        else:
            events.append((when, fact, tell.format(v=value)))
        expected[fact] = value
    for space, tell in others.items():
        events.append((rng.uniform(0, LAST), "", tell.format(v=VALUES[space](rng))))

    ends = {}
    for when, fact, said in sorted(events):
        _fill(script, talk, when * tokens, plain_text)
        where = script.say("user", f"{said}\n" if plain_text else said)
        ends[fact] = where.stop
        if kinds.get(fact) == "pinned":
            script.pin(where)
        if not plain_text:
            script.say("assistant", rng.choice(NOTED))
    _fill(script, talk, tokens, plain_text)
    questions = []
    for fact, kind in kinds.items():
        asked = [{"role": "user", "content": known[fact][1]}]
        distance = script.tokens - ends.get(fact, script.tokens)
        questions.append(Question(asked, distance, expected.get(fact), stale.get(fact), kind))
        script.ask(known[fact][1])
    for question in questions if recall else ():
        script.ask(question.messages[0]["content"], recall=True)
    return script, questions


def _fill(script: Written, talk: Iterator[tuple[str, str]], until: float, plain_text: bool) -> None:
    while script.tokens < until:
        said, answered = next(talk)
        if plain_text:
            script.say("user", f"{said} {answered}\n")
        else:
            script.say("user", said)
            script.say("assistant", answered)
