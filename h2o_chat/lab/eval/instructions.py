"""`h2o-chat lab eval instructions`: does a system prompt still hold after so many turns?

Every rule is one that a function can check. The turns in between are made up, and their answers keep the
rule or do not, as asked: with answers that keep it, a model may go on by imitation; with answers that do not,
the system prompt is all there is to obey.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from h2o_chat.base.progress import Tick, part, unheard
from h2o_chat.chat.templates.chat_template import choose
from h2o_chat.engine.runner import trained_positions
from h2o_chat.lab.eval import scripted_answers
from h2o_chat.lab.eval.recall_questions import ANSWER_TOKENS
from h2o_chat.lab.eval.scripted_conversation import Script
from h2o_chat.lab.eval.synthetic_talk import between
from h2o_chat.lab.shared.intervals import wilson
from h2o_chat.lab.shared.measured_results import Results, key
from h2o_chat.lab.shared.policy_variant import PolicyVariant, full_cache
from h2o_chat.lab.shared.report_output import print_tables, slots
from h2o_chat.models.load import Loaded
from h2o_chat.transformers_cache.cache import H2OCache

TURNS = (0, 10, 25, 50)
"""Before each question; all are asked of branches of one conversation."""
WORDS = ("apple", "river", "candle", "lemon", "marble", "button", "rocket", "parrot", "castle", "honey")


@dataclass(frozen=True)
class Rule:
    """A rule that a function can check."""

    prompt: str
    """With the word as {word}."""
    keep: Callable[[str, str], str]
    """(answer, word) -> the answer as it should be."""
    kept: Callable[[str, str], bool]
    """(answer, word) -> whether it is."""


def _bare(text: str) -> str:
    return text.strip().strip(".,!?\"'").lower()


RULES = {
    "end": Rule(
        "End every answer with the word {word}.",
        keep=lambda answer, word: f"{answer} {word}",
        kept=lambda answer, word: _bare(answer).split()[-1:] == [word],
    ),
    "begin": Rule(
        "Begin every answer with the word {word}.",
        keep=lambda answer, word: f"{word.capitalize()}: {answer}",
        kept=lambda answer, word: _bare((answer.split() or [""])[0].rstrip(":")) == word,
    ),
    "capitals": Rule(
        "Write every answer in capital letters only.",
        keep=lambda answer, word: answer.upper(),
        kept=lambda answer, word: answer.isupper(),
    ),
}


@dataclass(frozen=True)
class Obeyed:
    """Answers of a policy at a budget that keep a rule after so many turns."""

    policy: str
    budget: int | None
    """None: the full cache."""
    rule: str
    turns: int
    obeyed: int
    of: int
    """0: the conversation does not fit into the full cache."""
    interval: tuple[float, float] | None
    """95% interval of obeyed / of, by Wilson."""


@dataclass(frozen=True)
class InstructionsReport:
    """All shares of answers that obey."""

    model: str
    answers: list[Obeyed]


def draw(loaded: Loaded, rule: Rule, word: str, seed: str, imitate: bool) -> Script:
    """A conversation under a rule, with a question after 0, 10, 25 and 50 turns.

    Args:
        imitate: whether the answers in between keep the rule.
    """
    script = Script(loaded.tokenizer, choose(loaded.tokenizer, "auto"))
    script.say("system", rule.prompt.format(word=word))
    talk = between(random.Random(seed))
    said = 0
    for turns in TURNS:
        for question, answer in islice(talk, turns - said):
            script.say("user", question)
            script.say("assistant", rule.keep(answer, word) if imitate else answer)
        said = turns
        script.ask(next(talk)[0])
    return script


def measure(
    loaded: Loaded,
    rules: Sequence[str],
    conversations: int,
    seed: int,
    imitate: bool,
    variants: Sequence[PolicyVariant],
    budgets: Sequence[int],
    tick: Tick = unheard,
    results: Results | None = None,
) -> InstructionsReport:
    """The full cache first, then all variants at all budgets.

    Raises:
        BudgetError: a variant's parts do not fit a budget.
    """
    results = results or Results(None)
    positions = trained_positions(loaded)
    caches: list[tuple[str, int | None, H2OCache]] = [("full", None, full_cache(positions))]
    caches += [(str(c), budget, c.cache(budget, positions)) for c in variants for budget in budgets]
    asked = [(rule, WORDS[number % len(WORDS)], number) for rule in rules for number in range(conversations)]
    scripts = [draw(loaded, RULES[rule], word, f"{seed} {number}", imitate) for rule, word, number in asked]
    data = [feed.ids for script in scripts for feed in script.feeds]
    found = list[Obeyed]()
    for done, (name, budget, cache) in enumerate(caches):
        where = key(loaded, "instructions", data, policy=name, budget=budget)
        told = part(tick, done, len(caches))
        said = results.once(
            where, partial(scripted_answers.answers, loaded, scripts, cache, ANSWER_TOKENS, told)
        )
        for rule in rules:
            for number, turns in enumerate(TURNS):
                kept = [
                    RULES[rule].kept(answer, word)
                    for (its, word, _), answers in zip(asked, said, strict=True)
                    if its == rule and (answer := answers[number]) is not None
                ]
                interval = wilson(sum(kept), len(kept)) if kept else None
                found.append(Obeyed(name, budget, rule, turns, sum(kept), len(kept), interval))
    return InstructionsReport(loaded.name, found)


def show_table(report: InstructionsReport) -> None:
    """Rules, variants and budgets down, turns across."""
    from rich.table import Table

    table = Table(
        title=f"{report.model}: is the system prompt obeyed after so many turns?",
        caption="Share of answers that obey [95%]. Empty: longer than the full cache can hold.",
    )
    for name in ("rule", "policy", "slots", *map(str, TURNS)):
        table.add_column(name, justify="left" if name in ("rule", "policy") else "right")
    lines: dict[tuple[str, str, int | None], list[str]] = {}
    for one in report.answers:
        shown = ""
        if one.interval is not None:
            shown = f"{one.obeyed / one.of:.2f} [{one.interval[0]:.2f}, {one.interval[1]:.2f}]"
        lines.setdefault((one.rule, one.policy, one.budget), []).append(shown)
    for (rule, variant, budget), cells in lines.items():
        table.add_row(rule, variant, slots(budget), *cells)
    print_tables(table)
