"""`h2o-chat lab eval recall`: what is still known of things told long ago, which perplexity cannot see.

A question is a conversation that ends with somebody asking for what was told `distance` tokens before. Every
one is answered greedily, with a cache that keeps everything and with each policy and budget. Two figures are
given: the share of right answers, and the share of those that the full cache got right, so that what the
model cannot do is not held against the cache.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from h2o_chat.base.errors import UsageError
from h2o_chat.base.progress import Tick, part, unheard
from h2o_chat.chat.templates.chat_template import choose
from h2o_chat.engine.runner import trained_positions
from h2o_chat.lab.eval import scripted_answers
from h2o_chat.lab.eval.scripted_conversation import Script
from h2o_chat.lab.shared.intervals import wilson
from h2o_chat.lab.shared.lab_texts import read_lines
from h2o_chat.lab.shared.measured_results import Results, key
from h2o_chat.lab.shared.policy_variant import PolicyVariant, full_cache, slots_of
from h2o_chat.lab.shared.report_output import print_tables
from h2o_chat.models.load import Loaded
from h2o_chat.store import clean
from h2o_chat.transformers_cache.cache import H2OCache

ANSWER_TOKENS = 32
EDGES = (0, 300, 1000, 1500, 10**9)
"""Edges of the stretches of distances, in tokens."""
_NOT_TOLD = re.compile(r"(?:\bnot\b|\bnever\b|n't\b).*\b(?:told|tell|mentioned|know)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Question:
    """One line of a file of questions."""

    messages: list[dict[str, str]]
    """{"role", "content"}, the question last."""
    distance: int
    """Tokens between the telling and the question."""
    expected: str | None
    """The value; None where it was never told, and the right answer says so."""
    stale: str | None = None
    """The value before a correction: an answer with it is wrong."""
    kind: str = ""


@dataclass(frozen=True)
class Share:
    """Right answers of a policy at a budget, to questions of one stretch of distances or one kind."""

    policy: str
    budget: int | None
    """None: the full cache."""
    group: str
    right: int
    of: int
    interval: tuple[float, float]
    """95% interval of right / of, by Wilson."""
    kept: float | None
    """Share still recalled of the facts that the full cache recalled; None where there is none."""
    slots: int | None = None
    """Slots that were given: more than the budget, at equal bytes, where keys and values are smaller."""


@dataclass(frozen=True)
class RecallReport:
    """All shares, and what they were measured on."""

    model: str
    questions: int
    shares: list[Share]


def read_questions(path: Path) -> list[Question]:
    """A file of one JSON object a line.

    Raises:
        UsageError: it cannot be read, or a line is no question; says which.
    """
    questions = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            questions.append(_question(json.loads(line)))
        except (ValueError, TypeError, RecursionError) as error:
            raise UsageError(
                f"Line {number} of {path} is no question: {error}.",
                f"One JSON object a line with {', '.join(_FIELDS)}.",
            ) from error
    if not questions:
        raise UsageError(f"{path} holds no questions.")
    return questions


def _question(row: Any) -> Question:
    """
    Raises:
        ValueError, TypeError: it is none; says why.
    """
    if not isinstance(row, dict):
        raise ValueError("it is no JSON object")
    one = Question(**{name: row[name] for name in row if name in _FIELDS})
    said = one.messages if isinstance(one.messages, list) else []
    if not said or not all(isinstance(m, dict) and _is_said(m.get("role"), m.get("content")) for m in said):
        raise ValueError("messages is no list of objects with a role and a content")
    if type(one.distance) is not int or not 0 <= one.distance < 2**31:
        raise ValueError("distance is no number of tokens")
    if not (_is_said(one.kind) and all(v is None or _is_said(v) for v in (one.expected, one.stale))):
        raise ValueError("expected, stale or kind is no text")
    return one


def _is_said(*values: Any) -> bool:
    """True if these are texts that a tokenizer takes."""
    return all(isinstance(value, str) and value == clean(value) for value in values)


_FIELDS = ("messages", "distance", "expected", "stale", "kind")


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


def scripts_of(loaded: Loaded, questions: Sequence[Question]) -> list[Script]:
    """Conversations as the model is fed them, turn by turn as the program does it."""
    template = choose(loaded.tokenizer, "auto")
    scripts = []
    for question in questions:
        script = Script(loaded.tokenizer, template)
        for message in question.messages[:-1]:
            script.say(message["role"], message["content"])
        script.ask(question.messages[-1]["content"])
        scripts.append(script)
    return scripts


def answers(loaded: Loaded, scripts: Sequence[Script], cache: H2OCache, tick: Tick = unheard) -> list[str]:
    """Greedy answers in order; empty where the full cache has no room for the conversation."""
    return [said or "" for (said,) in scripted_answers.answers(loaded, scripts, cache, ANSWER_TOKENS, tick)]


def measure(
    loaded: Loaded,
    questions: Sequence[Question],
    variants: Sequence[PolicyVariant],
    budgets: Sequence[int],
    tick: Tick = unheard,
    results: Results | None = None,
    equal_bytes: bool = False,
) -> RecallReport:
    """Asks the full cache first, then all variants at all budgets.

    Args:
        results: what is there already is not measured again.
        equal_bytes: budgets are slots of the model's own precision; others get as many as fit into as much.

    Raises:
        BudgetError: a variant's parts do not fit a budget.
    """
    results = results or Results(None)
    sized = [(c, b, slots_of(loaded, c, b, equal_bytes)) for c in variants for b in budgets]
    runs = [(c, b, slots) for c, b, slots in sized if c.shares(slots)]
    positions, data = trained_positions(loaded), [asdict(question) for question in questions]
    scripts = scripts_of(loaded, questions)
    ticks = (part(tick, number, len(runs) + 1) for number in range(len(runs) + 1))

    def run(name: str, slots: int | None, cache: H2OCache) -> list[bool]:
        """Says which answers are right."""
        where, told = key(loaded, "recall", data, policy=name, budget=slots), next(ticks)
        said = results.once(where, partial(answers, loaded, scripts, cache, told))
        return [is_right(question, answer) for question, answer in zip(questions, said, strict=True)]

    full = run("full", None, full_cache(positions))
    shares = _shares("full", None, questions, full, full)
    for variant, budget, slots in runs:
        found = run(str(variant), slots, variant.cache(slots, positions))
        shares += _shares(str(variant), budget, questions, found, full, slots)
    return RecallReport(loaded.name, len(questions), shares)


def _shares(
    policy: str,
    budget: int | None,
    questions: Sequence[Question],
    right: Sequence[bool],
    full: Sequence[bool],
    slots: int | None = None,
) -> list[Share]:
    """Shares by distance (facts only), by kind, and over all facts."""
    groups: dict[str, list[int]] = {}
    for index, question in enumerate(questions):
        if question.expected is not None:
            for low, high in pairwise(EDGES):
                if low <= question.distance < high:
                    groups.setdefault(_stretch(low, high), []).append(index)
            groups.setdefault("all facts", []).append(index)
        groups.setdefault(question.kind or "not told", []).append(index)
    shares = []
    for group, members in groups.items():
        hits = sum(right[index] for index in members)
        known = [index for index in members if full[index]]
        kept = sum(right[index] for index in known) / len(known) if known else None
        spread = wilson(hits, len(members))
        shares.append(Share(policy, budget, group, hits, len(members), spread, kept, slots))
    return shares


def _stretch(low: int, high: int) -> str:
    return f"{low:,} to {high:,}" if high < EDGES[-1] else f"{low:,} and more"


def slots_cell(share: Share) -> str:
    """Slots of a share, as a table names them."""
    if share.budget is None:
        return "all"
    return f"{share.slots:,}" + ("" if share.slots == share.budget else f" in the bytes of {share.budget:,}")


def show_table(report: RecallReport) -> None:
    """Policies and budgets down; distances, all facts and what was not told across."""
    from rich.table import Table

    stretches = [_stretch(low, high) for low, high in pairwise(EDGES)]
    groups = [*stretches, "all facts", "not told"]
    groups = [group for group in groups if any(share.group == group for share in report.shares)]
    table = Table(
        title=f"{report.model}: {report.questions} questions, by tokens since it was told",
        caption="Share of right answers [95%]; after the slash: of what the full cache recalled.",
    )
    table.add_column("policy")
    table.add_column("slots", justify="right")
    for group in groups:
        table.add_column(group, justify="right")
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for share in report.shares:
        low, high = share.interval
        cell = f"{share.right / share.of:.2f} [{low:.2f}, {high:.2f}]"
        if share.budget is not None and share.kept is not None:
            cell += f" / {share.kept:.2f}"
        lines.setdefault((share.policy, slots_cell(share)), {})[share.group] = cell
    for (variant, slots), cells in lines.items():
        table.add_row(variant, slots, *(cells.get(group, "") for group in groups))
    print_tables(table)
