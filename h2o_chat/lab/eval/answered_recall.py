"""`h2o-chat lab eval recall`: what is known at the end of made-up conversations, which the model answers.

A cache that keeps everything ends with the model's window, so it cannot be the reference of a long one.
Instead it is asked the same facts with nothing said in between: what it cannot answer then is beyond the
model, and not forgotten.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import BudgetError
from h2o_chat.base.progress import Tick, part, unheard
from h2o_chat.chat.conversation.chat import Chat, pin
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Turn
from h2o_chat.lab.eval.synthetic_talk import (
    CORRECTED,
    DISTRACTORS,
    FACTS,
    VALUES,
    Question,
    between,
    is_right,
)
from h2o_chat.lab.shared.intervals import wilson
from h2o_chat.lab.shared.policy_variant import Run
from h2o_chat.lab.shared.report_output import print_table, slots
from h2o_chat.models.load import Loaded

KINDS = Counter({"plain": 5, "pinned": 2, "corrected": 2, "not told": 1})
"""Facts of a conversation that are asked for."""
ANSWER_TOKENS = 32
LAST = 0.9
"""Share of the conversation in which they are told."""
BARE = "full, nothing between"
"""Who was told the facts alone."""
GROUPS = ("plain", "plain, far half", "pinned", "corrected", "not told")
"""Columns: kinds of facts, and plain ones told in the first half of the conversation."""


@dataclass(frozen=True)
class Share:
    """Right answers of a policy at a budget, to questions of one kind."""

    policy: str
    budget: int | None
    """None: the full cache."""
    group: str
    right: int
    of: int
    interval: tuple[float, float]
    """95% interval of right / of, by Wilson."""
    kept: float | None
    """Share still recalled of what was answered with nothing between; None where that is nothing."""


@dataclass(frozen=True)
class LongRecallReport:
    model: str
    tokens: int
    """Tokens of a conversation, about."""
    conversations: int
    shares: list[Share]


class Answered:
    """A conversation, written message by message; the model answers each.

    Args:
        chat: a new one.
    """

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.answers: list[str] = []
        """Answers to the questions, in order."""

    @property
    def tokens(self) -> int:
        """Tokens fed so far."""
        return self.chat.engine.seen

    def say(self, text: str) -> int:
        """Says a message; returns the position behind its last token."""
        self._send(text)
        return self.chat.messages[-2].last + 1

    def pin(self) -> None:
        """Protects the message that was said last; where so many cannot be protected it is not."""
        with suppress(BudgetError):
            list(pin(self.chat, len(self.chat.messages) - 2))

    def ask(self, text: str, recall: bool = False) -> None:
        """Asks a question, which the rest of the conversation does not know of."""
        chat, before = self.chat, len(self.chat.messages)
        state = chat.engine.snapshot()
        chat.settings = replace(chat.settings, recall="auto" if recall else "off")
        self.answers.append(self._send(text))
        chat.engine.restore(state, hand_over=True)
        del chat.messages[before:]

    def _send(self, text: str) -> str:
        sampling = Sampling(max_tokens=ANSWER_TOKENS)
        return next(event.text for event in self.chat.send(text, sampling) if isinstance(event, Turn))


def write(script: Answered, tokens: int, seed: str, recall: bool = False) -> list[Question]:
    """A conversation of about so many tokens; returns the questions that it asks, in order.

    Facts are told evenly over its first nine tenths, two of them corrected later on and two pinned as they
    are said; beside them stand distractors, values of the same kinds that nobody asks for.

    Args:
        tokens: 0 for the same facts in the same order with nothing in between.
        recall: all questions are asked once more at the end, with recall.
    """
    rng, talk = random.Random(f"{seed} facts"), between(random.Random(f"{seed} talk"))
    kinds = dict(zip(rng.sample(sorted(FACTS), KINDS.total()), KINDS.elements(), strict=True))
    events: list[tuple[float, str, str]] = []  # when, fact or nothing, what is said
    expected, stale = {}, {}
    for fact, kind in kinds.items():
        tell, _, space = FACTS[fact]
        if kind == "not told":
            continue
        value, when = VALUES[space](rng), rng.uniform(0, LAST)
        events.append((when, fact, tell.format(v=value)))
        if kind == "corrected":
            stale[fact] = value
            while value == stale[fact]:
                value = VALUES[space](rng)
            when = rng.uniform(when, LAST)
            events.append((when, fact, CORRECTED.format(told=tell.format(v=value))))
        expected[fact] = value
    for space, tell in DISTRACTORS.items():
        events.append((rng.uniform(0, LAST), "", tell.format(v=VALUES[space](rng))))

    ends = {}
    for when, fact, said in sorted(events):
        _fill(script, talk, when * tokens)
        ends[fact] = script.say(said)
        if kinds.get(fact) == "pinned":
            script.pin()
    _fill(script, talk, tokens)
    questions = []
    for fact, kind in kinds.items():
        distance = script.tokens - ends.get(fact, script.tokens)
        questions.append(Question(FACTS[fact][1], distance, expected.get(fact), stale.get(fact), kind))
        script.ask(FACTS[fact][1])
    for question in questions if recall else ():
        script.ask(question.text, recall=True)
    return questions


def _fill(script: Answered, talk: Iterator[str], until: float) -> None:
    while script.tokens < until:
        script.say(next(talk))


def _answers(
    loaded: Loaded, run: Run, tokens: int, seeds: Sequence[str], recall: bool, tick: Tick
) -> tuple[list[list[str]], list[Question]]:
    """Answers of every conversation, without recall, then with it; all questions in order."""
    found, questions = [], list[Question]()
    for number, seed in enumerate(seeds):
        settings = replace(run.settings(), recall="off")
        script = Answered(Chat(Engine(loaded, settings), settings))
        questions += write(script, tokens, seed, recall)
        found.append(script.answers)
        script.chat.close()
        tick((number + 1) / len(seeds))
    return found, questions


def measure(
    loaded: Loaded,
    tokens: int,
    conversations: int,
    seed: int,
    runs: Sequence[Run],
    tick: Tick = unheard,
    recall: bool = False,
) -> LongRecallReport:
    """Measures the facts with nothing in between first, then every run.

    Args:
        runs: without the cache that keeps everything, which a long conversation does not fit.
        recall: each is asked once more with what is gone told again.
    """
    shares, known = list[Share](), list[bool]()
    seeds = [f"{seed} {number}" for number in range(conversations)]
    ways = [(Run(), 0), *((run, tokens) for run in runs)]
    for done, (run, length) in enumerate(ways):
        again = recall and length > 0
        said, questions = _answers(loaded, run, length, seeds, again, part(tick, done, len(ways)))
        for at, name in enumerate((run.name, f"{run.name}, recall")[: 1 + again]):
            each = [answer for one in said for answer in one[at * KINDS.total() : (at + 1) * KINDS.total()]]
            right = [is_right(*pair) for pair in zip(questions, each, strict=True)]
            known = known or right
            shares += shares_of(name if length else BARE, run.budget, questions, right, known, tokens)
    return LongRecallReport(loaded.name, tokens, conversations, shares)


def shares_of(
    policy: str,
    budget: int | None,
    questions: Sequence[Question],
    right: Sequence[bool],
    known: Sequence[bool],
    tokens: int,
) -> list[Share]:
    shares = []
    for group in GROUPS:
        members = [
            (hit, could)
            for question, hit, could in zip(questions, right, known, strict=True)
            if question.kind == group.split(",")[0]
            and (group != "plain, far half" or question.distance >= tokens / 2)
        ]
        if members:
            hits, of = sum(hit for hit, _ in members), len(members)
            still = [hit for hit, could in members if could]
            kept = sum(still) / len(still) if still else None
            shares.append(Share(policy, budget, group, hits, of, wilson(hits, of), kept))
    return shares


def show_table(report: LongRecallReport) -> None:
    """Policies and budgets down, kinds of facts across."""
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for share in report.shares:
        low, high = share.interval
        cell = f"{share.right / share.of:.2f} [{low:.2f}, {high:.2f}]"
        if share.kept is not None and share.policy != BARE:
            cell += f" / {share.kept:.2f}"
        lines.setdefault((share.policy, slots(share.budget)), {})[share.group] = cell
    print_table(
        ("policy", "slots", *GROUPS),
        [(*who, *(cells.get(group, "") for group in GROUPS)) for who, cells in lines.items()],
        f"{report.model}: {report.conversations} conversations of {report.tokens:,} tokens",
        "Share of right answers [95%]; after the slash: of what was answered with nothing between.",
    )
