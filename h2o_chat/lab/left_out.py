"""What an answer rested on, by trying: how much less likely it is with each earlier message left out.

The truth that the weights of query heads are learned from and measured by (`tools/train_source.py`,
`tools/measure_source.py`). Conversations are short enough that nothing of them is forgotten.

Shapes: Q answers, M messages, V vocabulary.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from h2o_chat.chat.message import Message
from h2o_chat.chat.templates import Template, literal
from h2o_chat.engine.engine import Engine
from h2o_chat.lab.conversations import draw
from h2o_chat.lab.recall import Question
from h2o_chat.lab.talk import FACTS, TEXT_FACTS, between

RESTS = 1.0
"""Nats by which an answer is less likely without a message on which it rests."""
CLEARLY = 4.0
"""The same where there is no doubt: weights are learned from such messages, and from those below `RESTS`."""
TALK = 6
"""Messages of small talk that are answered in each conversation."""
LONGEST_TALK = 900
"""Tokens of a conversation of a file."""
FILLED = (0, 0, 300, 400, 450)
"""Tokens of a conversation, at least: the facts alone are about 300."""
CUT = (2, 4, 8, 16, None, None, None, None)
"""Messages that are left of it."""


@dataclass(frozen=True)
class Drawn:
    """A conversation, and what is asked at its end: facts, corrected ones, ones never told, small talk."""

    messages: list[Message]
    ids: list[int]
    """Of all tokens said."""
    questions: list[Question]


@dataclass(frozen=True)
class Answered:
    """An answer to one of the questions."""

    asked: Sequence[int]
    """Tokens of the question, as they follow the conversation."""
    answer: Sequence[int]


def drawn(tokenizer: Any, template: Template, seed: str, tokens: int | None = None) -> Drawn:
    """A conversation as `h2o-chat eval recall --generate` makes them, with more questions than that asks.

    Args:
        tokens: of the conversation, about; None for one of `FILLED`, half of them cut to a few messages.
    """
    rng = random.Random(f"{seed} length")
    filled, cut = rng.choice(FILLED), rng.choice(CUT)
    script, questions = draw(tokenizer, template, filled if tokens is None else tokens, seed)
    facts = TEXT_FACTS if template.name == "plain" else FACTS
    told = {question.messages[0]["content"] for question in questions}
    others = [(ask, "not told") for _, ask, _ in facts.values() if ask not in told]
    others += [(said, "talk") for said, _ in islice(between(random.Random(f"{seed} other")), TALK)]
    more = [Question([{"role": "user", "content": text}], 0, None, None, kind) for text, kind in others]
    messages = script.messages if tokens is not None else script.messages[:cut]
    ids = [token for feed in script.feeds if not feed.asks for token in feed.ids] + script.pending
    return Drawn(messages, ids[: messages[-1].last + 1], questions + more)


def talked(tokenizer: Any, template: Template, file: Path, half: int) -> list[Drawn]:
    """Conversations of a file, each up to its last message of the user, which is what is asked.

    Args:
        file: a JSON list of conversations, each a list of objects with a role and a content.
        half: 0 for the first, the third ...; 1 for the others.
    """
    found = []
    for said in json.loads(file.read_text("utf-8"))[half::2]:
        last = max((at for at, one in enumerate(said) if one["role"] == "user"), default=0)
        ids, messages = list[int](), list[Message]()
        for one in said[:last]:
            role, text = one["role"], one["content"]
            fed = template.later(text) if ids else template.first(None, text)
            more = fed.ids if role == "user" else literal(tokenizer, text)
            messages.append(Message(role, text, len(ids), len(ids) + len(more) - 1))
            ids += more
        if messages and len(ids) < LONGEST_TALK:
            found.append(Drawn(messages, ids, [Question([dict(said[last])], 0, None, None, "talk")]))
    return found


def lost_without(full: Engine, one: Drawn, answers: Sequence[Answered]) -> Tensor:
    """Nats that each answer loses with each message of the conversation left out. [Q, M]

    Args:
        full: an engine with the policy `full`; what it holds is lost.
    """
    ids, spans = one.ids, [(max(1, message.first), message.last + 1) for message in one.messages]
    whole = _likely(full, ids, answers)
    without = [_likely(full, ids[:first] + ids[end:], answers) for first, end in spans]
    return whole[:, None] - torch.stack(without, 1)


def _likely(full: Engine, ids: Sequence[int], answers: Sequence[Answered]) -> Tensor:
    """Logarithm of the probability of each answer after these tokens. [Q]"""
    full.reset()
    full.feed(ids)
    state = full.snapshot()
    found = []
    for one in answers:
        full.restore(state)
        fed = [*one.asked, *one.answer[:-1]]
        logits = full.runner.feed([fed], True, all_columns=True)[0, -len(one.answer) :]  # [N, V]
        likely = logits.float().log_softmax(-1).gather(1, torch.tensor(one.answer)[:, None])
        found.append(likely.sum())
    return torch.stack(found)


def read(engine: Engine, one: Drawn) -> None:
    """Reads a conversation as the program does: the last token of an answer waits for the next message."""
    engine.reset()
    waiting: list[int] = []
    for message in one.messages:
        ids = waiting + one.ids[message.first : message.last + 1]
        waiting = [] if message.role == "user" else [ids.pop()]
        engine.feed(ids, prompt=message.role == "user")
    engine.pending = tuple(waiting)
