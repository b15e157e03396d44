"""`h2o-chat lab eval qa`: questions on long texts, as arXiv 2605.18053 asks them, scored by token F1.

Each item is one message, "Passage: ...", a blank line and "Question: ...", of which the beginning is cut off
where it is too long. It is said to a new conversation and answered greedily, with what is gone told again
(recall) and without.
"""

import re
import string
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from h2o_chat.base.config import Sampling
from h2o_chat.base.progress import Tick, unheard
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Note, Turn
from h2o_chat.lab.shared.intervals import mean_interval, share_interval
from h2o_chat.lab.shared.policy_variant import Run
from h2o_chat.lab.shared.report_output import print_table, slots
from h2o_chat.models.load import Loaded
from h2o_chat.models.tokenizer_calls import text_of, tokens_of

PROMPT_TOKENS = 1910
"""Tokens of a message at most; the beginning of a longer one is cut off."""


@dataclass(frozen=True)
class Item:
    context: str
    question: str
    answer: str


@dataclass(frozen=True)
class Scored:
    """All items with one policy at one budget, with recall or without."""

    policy: str
    budget: int | None
    """None: the full cache."""
    recall: bool
    f1: float
    """Mean over the items, 0 to 1."""
    interval: tuple[float, float]
    """The 95% interval of the mean, by bootstrap over items."""
    share: tuple[float, float, float] | None
    """F1 as a share of the full cache's, and its 95% interval, by paired bootstrap over items. None: the full
    cache was not measured, or is all wrong."""
    recalled: int
    """Items for which something was recalled."""
    seconds: float
    """Seconds to read and answer all items."""
    answers: list[str]


@dataclass(frozen=True)
class QaReport:
    model: str
    items: int
    step: str
    """The step that computed it: native or transformers."""
    scores: list[Scored]


def message(tokenizer: Any, item: Item, tokens: int) -> str:
    """The message of an item: its last so many tokens."""
    whole = f"Passage: {item.context}\n\nQuestion: {item.question}"
    ids = tokens_of(tokenizer, whole)
    return whole if len(ids) <= tokens else text_of(tokenizer, ids[-tokens:])


def normalised(text: str) -> str:
    """Normalises as SQuAD does: lower case, no punctuation, no articles, single spaces."""
    text = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall of the words, after normalisation."""
    said, wanted = normalised(answer).split(), normalised(reference).split()
    if not said or not wanted:
        return float(said == wanted)
    both = sum((Counter(said) & Counter(wanted)).values())
    return 2 * both / (len(said) + len(wanted))


def measure(
    loaded: Loaded,
    items: Sequence[Item],
    runs: Sequence[Run],
    system: str | None = None,
    answer_tokens: int = 128,
    recall: bool = True,
    seed: int = 0,
    tick: Tick = unheard,
) -> QaReport:
    """Measures every run without recall and, unless `recall` is off, with it; the full cache has nothing to
    recall."""
    scores, whole = list[Scored](), list[float]()
    ways = [(run, told) for run in runs for told in ((False, True) if run.budget and recall else (False,))]
    step = ""
    for done, (run, told) in enumerate(ways):
        settings = replace(run.settings(), recall="auto" if told else "off", system=system)
        chat = Chat(Engine(loaded, settings), settings)
        step, answers = chat.session.engine, list[str]()
        recalled, seconds = 0, 0.0
        for number, item in enumerate(items):
            text = message(loaded.tokenizer, item, PROMPT_TOKENS)
            began = time.monotonic()
            chat.clear()
            events = list(chat.send(text, Sampling(max_tokens=answer_tokens)))
            seconds += time.monotonic() - began
            answers.append(next(event.text for event in events if isinstance(event, Turn)))
            recalled += any(isinstance(one, Note) and one.code in ("recalled", "doubtful") for one in events)
            tick((done + (number + 1) / len(items)) / len(ways))
        chat.close()
        each = [f1(answer, item.answer) for answer, item in zip(answers, items, strict=True)]
        whole = each if run.budget is None else whole
        share = (sum(each) / sum(whole), *share_interval(each, whole, seed)) if any(whole) else None
        score = sum(each) / len(each), mean_interval(each, seed), share
        scores.append(Scored(run.name, run.budget, told, *score, recalled, seconds, answers))
    return QaReport(loaded.name, len(items), step, scores)


def show_table(report: QaReport) -> None:
    """Policies and budgets down, without recall and with it."""
    rows = [
        (
            *(one.policy, slots(one.budget), "yes" if one.recall else "no"),
            "{:.3f} [{:.2f}, {:.2f}]".format(one.f1, *one.interval),
            "{:.2f} [{:.2f}, {:.2f}]".format(*one.share) if one.share else "-",
            *(str(one.recalled), f"{one.seconds / 60:.1f}"),
        )
        for one in report.scores
    ]
    print_table(
        ("policy", "slots", "recall", "F1", "share of full", "told again", "minutes"),
        rows,
        f"{report.model}, {report.step}: {report.items} questions on long texts",
        "Token F1 [95% bootstrap interval over questions].",
    )
