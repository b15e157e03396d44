"""`h2o-chat eval recall`: what is still known of things told long ago, which perplexity cannot see.

A question is a conversation that ends with somebody asking for what was told `distance` tokens before. Every
one is answered greedily, with a cache that keeps everything and with each policy and budget. Two figures are
given: the share of right answers, and the share of those that the full cache got right, so that what the
model cannot do is not held against the cache.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from h2o_chat.cache import H2OCache
from h2o_chat.config import Settings
from h2o_chat.errors import ExitCode, UsageError
from h2o_chat.lab.perplexity import Contestant, Tick
from h2o_chat.models import Loaded, load
from h2o_chat.policies import divide
from h2o_chat.progress import progress_bar
from h2o_chat.rope import probe

ROWS = 8
"""Conversations at once, of similar length."""
ANSWER_TOKENS = 32
EDGES = (0, 300, 1000, 1500, 10**9)
"""Tokens: the distances are told apart here."""
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

    contestant: str
    budget: int | None
    """None: the full cache."""
    group: str
    right: int
    of: int
    interval: tuple[float, float]
    """Of right / of: Wilson, 95%."""
    kept: float | None
    """Of the facts that the full cache recalled, the share still recalled; None where there is none."""


@dataclass(frozen=True)
class Report:
    """All shares, and what they were measured on."""

    model: str
    questions: int
    shares: list[Share]


def read_questions(path: Path) -> list[Question]:
    """A file of one JSON object a line.

    Raises:
        UsageError: it cannot be read, or a line is no question; says which.
    """
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from error
    questions = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            questions.append(Question(**{name: row[name] for name in row if name in _FIELDS}))
        except (ValueError, TypeError) as error:
            raise UsageError(
                f"Line {number} of {path} is no question: {error}.",
                f"One JSON object a line with {', '.join(_FIELDS)}.",
            ) from error
    if not questions:
        raise UsageError(f"{path} holds no questions.")
    return questions


_FIELDS = ("messages", "distance", "expected", "stale", "kind")


def is_right(question: Question, answer: str) -> bool:
    """Whether an answer holds the value and not the one it replaced, or says that it was not told."""
    if question.expected is None:
        return _NOT_TOLD.search(answer) is not None
    if question.stale and holds(answer, question.stale):
        return False
    return holds(answer, question.expected)


def holds(answer: str, value: str) -> bool:
    """Whether the value stands in the answer as a whole: 14 is not in 149."""
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", answer, re.IGNORECASE) is not None


def wilson(right: int, total: int) -> tuple[float, float]:
    """The 95% Wilson interval of a share."""
    z, share = 1.96, right / total
    middle = share + z * z / (2 * total)
    width = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (middle - width) / scale), min(1.0, (middle + width) / scale)


@torch.inference_mode()
def answers(
    loaded: Loaded, questions: Sequence[Question], new_cache: Callable[[], H2OCache], tick: Tick
) -> list[str]:
    """Greedy answers in order, each batch of conversations through a cache of its own."""
    tokenizer, found = loaded.tokenizer, [""] * len(questions)
    prompts = [
        tokenizer.apply_chat_template(q.messages, add_generation_prompt=True, return_dict=False)
        for q in questions
    ]
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
    for first in range(0, len(order), ROWS):
        batch = order[first : first + ROWS]
        longest = max(len(prompts[index]) for index in batch)
        ids = torch.full((len(batch), longest), pad)
        mask = torch.zeros_like(ids)
        for row, index in enumerate(batch):
            ids[row, longest - len(prompts[index]) :] = torch.tensor(prompts[index])
            mask[row, longest - len(prompts[index]) :] = 1
        out = loaded.model.generate(
            ids.to(loaded.device),
            attention_mask=mask.to(loaded.device),
            past_key_values=new_cache(),
            max_new_tokens=ANSWER_TOKENS,
            do_sample=False,
        )
        for index, row_ids in zip(batch, out[:, longest:].tolist(), strict=True):
            found[index] = tokenizer.decode(row_ids, skip_special_tokens=True)
        tick((first + len(batch)) / len(order))
    return found


def measure(
    loaded: Loaded,
    questions: Sequence[Question],
    contestants: Sequence[Contestant],
    budgets: Sequence[int],
    tick: Tick = lambda share: None,
) -> Report:
    """The full cache first, then all contestants at all budgets.

    Raises:
        BudgetError: a contestant's parts do not fit a budget.
    """
    positions = probe(loaded.model)
    runs = [(c, b, divide(c.policy, b, c.sinks, c.recent)) for c in contestants for b in budgets]
    done = 0

    def right(**plan: Any) -> list[bool]:
        nonlocal done
        said = answers(
            loaded,
            questions,
            lambda: H2OCache(positions=positions, **plan),
            lambda share: tick((done + share) / (len(runs) + 1)),
        )
        done += 1
        return [is_right(question, answer) for question, answer in zip(questions, said, strict=True)]

    full = right(policy="full")
    shares = _shares("full", None, questions, full, full)
    for contestant, budget, parts in runs:
        found = right(budget=budget, policy=contestant.policy, sinks=parts.sinks, recent=parts.recent)
        shares += _shares(str(contestant), budget, questions, found, full)
    return Report(loaded.name, len(questions), shares)


def _shares(
    contestant: str,
    budget: int | None,
    questions: Sequence[Question],
    right: Sequence[bool],
    full: Sequence[bool],
) -> list[Share]:
    """By distance (facts only), by kind, and over all facts."""
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
        interval = wilson(hits, len(members))
        shares.append(Share(contestant, budget, group, hits, len(members), interval, kept))
    return shares


def _stretch(low: int, high: int) -> str:
    return f"{low:,} to {high:,}" if high < EDGES[-1] else f"{low:,} and more"


def run_recall(
    settings: Settings, questions: Path, policies: Sequence[str], budgets: Sequence[int], as_json: bool
) -> ExitCode:
    """The command: a table, or one JSON object, on stdout; progress on stderr."""
    contestants = [Contestant.parse(policy) for policy in policies]
    found = read_questions(questions)
    with progress_bar() as show:
        report = measure(load(settings, show), found, contestants, budgets, partial(show, "answer"))
    if as_json:
        sys.stdout.write(json.dumps(asdict(report)) + "\n")
    else:
        show_table(report)
    return ExitCode.OK


def show_table(report: Report) -> None:
    """Contestants and budgets down; distances, all facts and what was not told across."""
    from rich.console import Console
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
    lines: dict[tuple[str, int | None], dict[str, str]] = {}
    for share in report.shares:
        low, high = share.interval
        cell = f"{share.right / share.of:.2f} [{low:.2f}, {high:.2f}]"
        if share.budget is not None and share.kept is not None:
            cell += f" / {share.kept:.2f}"
        lines.setdefault((share.contestant, share.budget), {})[share.group] = cell
    for (contestant, budget), cells in lines.items():
        slots = "all" if budget is None else f"{budget:,}"
        table.add_row(contestant, slots, *(cells.get(group, "") for group in groups))
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200).print(table)
