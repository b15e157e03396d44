"""`h2o-chat lab eval generate`: summaries and answers to questions, scored against references (HELM,
2211.09110).

Every line of the file is one prompt, which is read chunk by chunk through the bounded cache and answered
greedily. ROUGE (rouge-score) compares an answer with its reference by the words they share; exact match asks
for the same words, after the normalisation of SQuAD (1606.05250).
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import UsageError
from h2o_chat.base.progress import Tick, part, unheard
from h2o_chat.chat.templates.chat_template import choose
from h2o_chat.engine.engine import Engine
from h2o_chat.events.events import Turn
from h2o_chat.lab.shared.intervals import mean_interval
from h2o_chat.lab.shared.measured_results import Results, key
from h2o_chat.lab.shared.policy_runs import Run
from h2o_chat.lab.shared.report_output import print_tables, slots
from h2o_chat.models.load import Loaded

ROUGE = ("rouge1", "rouge2", "rougeL")
METRICS = (*ROUGE, "exact match", "F1")


@dataclass(frozen=True)
class Item:
    """One line of the file."""

    prompt: str
    reference: str


@dataclass(frozen=True)
class Scored:
    """One metric of one policy at one budget, 0 to 1, a mean over all items."""

    policy: str
    budget: int | None
    """None: the full cache."""
    metric: str
    value: float
    interval: tuple[float, float]
    """95% interval of the value, bootstrap over items."""
    change: float
    """To the full cache."""
    change_interval: tuple[float, float]
    """95% interval of the change: items are compared with themselves."""


@dataclass(frozen=True)
class GenerateReport:
    """All scores, and what they were measured on."""

    model: str
    items: int
    most_prompt_tokens: int
    scores: list[Scored]
    answers: dict[str, list[str]]
    """By "policy budget"."""


def normalised(text: str) -> str:
    """Normalises as SQuAD does: lower case, no punctuation, no articles, single spaces."""
    text = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact(answer: str, reference: str) -> float:
    """1 where both say the same after normalisation."""
    return float(normalised(answer) == normalised(reference))


def f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall of the words, after normalisation."""
    said, wanted = normalised(answer).split(), normalised(reference).split()
    if not said or not wanted:
        return float(said == wanted)
    both = sum((Counter(said) & Counter(wanted)).values())
    return 2 * both / (len(said) + len(wanted))


def rouge_scorer() -> Any:
    """
    Raises:
        UsageError: rouge-score is not installed.
    """
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ModuleNotFoundError as error:
        raise UsageError(
            "ROUGE needs the package rouge-score.", "Install it with pip install 'h2o-chat[scores]'."
        ) from error
    return RougeScorer(ROUGE, use_stemmer=True)


def answers(
    loaded: Loaded, items: Sequence[Item], settings: Settings, tokens: int, stop: tuple[str, ...], tick: Tick
) -> tuple[list[str], int]:
    """Greedy answers in order, each to a conversation of its own; and the longest prompt in tokens."""
    engine, template = Engine(loaded, settings), choose(loaded.tokenizer, "auto")
    found, longest = [], 0
    sampling = Sampling(max_tokens=tokens, stop=stop)
    for number, item in enumerate(items):
        engine.reset()
        ids = template.first(None, item.prompt).ids
        longest = max(longest, len(ids))
        found += [event.text for event in engine.generate(ids, sampling) if isinstance(event, Turn)]
        tick((number + 1) / len(items))
    return found, longest


def measure(
    loaded: Loaded,
    items: Sequence[Item],
    runs: Sequence[Run],
    tokens: int,
    stop: tuple[str, ...] = (),
    chunk: int | None = None,
    seed: int = 0,
    tick: Tick = unheard,
    results: Results | None = None,
) -> GenerateReport:
    """The full cache, which is the first run, then all others against it.

    Args:
        results: what was answered already is not answered again.

    Raises:
        WindowFullError: a prompt is longer than the model's window: then there is no full cache to compare.
    """
    scorer, scores, results = rouge_scorer(), [], results or Results(None)
    full: dict[str, list[float]] = {}
    said: dict[str, list[str]] = {}
    longest = 0
    for number, run in enumerate(runs):
        told, data = part(tick, number, len(runs)), [[item.prompt for item in items], tokens, stop, chunk]
        where = key(loaded, "generate", data, policy=run.name, budget=run.budget)
        found, longest = results.once(
            where, partial(answers, loaded, items, run.settings(chunk), tokens, stop, told)
        )
        said[f"{run.name} {run.budget or ''}".strip()] = found
        each: dict[str, list[float]] = {metric: [] for metric in METRICS}
        for item, answer in zip(items, found, strict=True):
            for metric, score in scorer.score(item.reference, answer).items():
                each[metric].append(score.fmeasure)
            each["exact match"].append(exact(answer, item.reference))
            each["F1"].append(f1(answer, item.reference))
        full = full or each
        for metric, values in each.items():
            changes = [a - b for a, b in zip(values, full[metric], strict=True)]
            scores.append(
                Scored(
                    policy=run.name,
                    budget=run.budget,
                    metric=metric,
                    value=sum(values) / len(values),
                    interval=mean_interval(values, seed),
                    change=sum(changes) / len(changes),
                    change_interval=mean_interval(changes, seed),
                )
            )
    return GenerateReport(loaded.name, len(items), longest, scores, said)


def show_table(report: GenerateReport) -> None:
    """Policies and budgets down, metrics across."""
    from rich.table import Table

    table = Table(
        title=f"{report.model}: {report.items} prompts of up to {report.most_prompt_tokens:,} tokens",
        caption="[95% bootstrap interval over prompts]; after the slash: change to full, paired.",
    )
    table.add_column("policy")
    table.add_column("slots", justify="right")
    for metric in METRICS:
        table.add_column(metric, justify="right")
    lines: dict[tuple[str, int | None], list[str]] = {}
    for score in report.scores:
        low, high = score.interval
        cell = f"{score.value:.3f} [{low:.2f}, {high:.2f}]"
        if score.budget is not None:
            cell += f" / {score.change:+.3f}"
        lines.setdefault((score.policy, score.budget), []).append(cell)
    for (variant, budget), cells in lines.items():
        table.add_row(variant, slots(budget), *cells)
    print_tables(table)
