"""`h2o-chat lab eval recall --generate TOKENS`: what is still known at the end of conversations of any
length.

A cache that keeps everything ends with the model's window, so it cannot be the reference of a long one.
Instead it is asked the same facts with nothing said in between: what it cannot answer then is beyond the
model, and not forgotten.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

from h2o_chat.base.progress import Tick, part, unheard
from h2o_chat.chat.templates.chat_template import choose
from h2o_chat.engine.runner import trained_positions
from h2o_chat.lab.eval import scripted_answers
from h2o_chat.lab.eval.recall_questions import ANSWER_TOKENS, Question, Share, is_right, slots_cell
from h2o_chat.lab.eval.scripted_conversation import Script
from h2o_chat.lab.eval.synthetic_conversations import KINDS, draw
from h2o_chat.lab.shared.intervals import wilson
from h2o_chat.lab.shared.measured_results import Results, key
from h2o_chat.lab.shared.policy_variant import PolicyVariant, full_cache, slots_of
from h2o_chat.lab.shared.report_output import print_tables
from h2o_chat.models.load import Loaded
from h2o_chat.transformers_cache.cache import H2OCache

BARE = "full, nothing between"
"""Who was told the facts alone."""
GROUPS = ("plain", "plain, far half", "pinned", "corrected", "not told")
"""Columns: kinds of facts, and plain ones told in the first half of the conversation."""


@dataclass(frozen=True)
class LongRecallReport:
    """All shares, and what they were measured on."""

    model: str
    tokens: int
    """Tokens of a conversation, about."""
    conversations: int
    window: int
    """Tokens that the full cache can hold."""
    full_fits: bool
    shares: list[Share]


def measure_long(
    loaded: Loaded,
    tokens: int,
    conversations: int,
    seed: int,
    variants: Sequence[PolicyVariant],
    budgets: Sequence[int],
    tick: Tick = unheard,
    results: Results | None = None,
    equal_bytes: bool = False,
    recall: bool = False,
) -> LongRecallReport:
    """The facts with nothing in between first, then the full cache where it fits, then all others.

    Args:
        results: what is there already is not measured again.
        equal_bytes: budgets are slots of the model's own precision; others get as many as fit into as much.
        recall: each policy is asked once more with recall.

    Raises:
        BudgetError: a variant's parts do not fit a budget.
    """
    results = results or Results(None)
    sized = [(c, b, slots_of(loaded, c, b, equal_bytes)) for c in variants for b in budgets]
    runs = [(c, b, slots) for c, b, slots in sized if c.shares(slots)]
    positions = trained_positions(loaded)
    bare, _ = _drawn(loaded, 0, conversations, seed)
    scripts, questions = _drawn(loaded, tokens, conversations, seed, recall)
    ticks = (part(tick, number, len(runs) + 2) for number in range(len(runs) + 2))

    def right(name: str, budget: int | None, read: Sequence[Script], cache: H2OCache) -> list[list[bool]]:
        """Which answers are right: to all questions, then to all of them with recall."""
        told = next(ticks)
        data = [[feed.ids for feed in script.feeds] + [sorted(script.pins)] for script in read]
        where = key(loaded, "long recall", data, policy=name, budget=budget)
        said = results.once(where, lambda: scripted_answers.answers(loaded, read, cache, ANSWER_TOKENS, told))
        asked = KINDS.total()
        times = [[answer or "" for answers in said for answer in answers[:asked]]]
        if recall and read is not bare:
            times.append([answer or "" for answers in said for answer in answers[asked:]])
        return [
            [is_right(question, answer) for question, answer in zip(questions, answers, strict=True)]
            for answers in times
        ]

    [known] = right("full", None, bare, full_cache(positions))
    shares = shares_of(BARE, None, questions, known, known, tokens)
    fits = max(script.tokens for script in scripts) + 2 * ANSWER_TOKENS <= positions.window
    if fits:
        found, *_ = right("full", None, scripts, full_cache(positions))
        shares += shares_of("full", None, questions, found, known, tokens)
    for variant, budget, slots in runs:
        cache = variant.cache(slots, positions)
        pins = _room(variant, slots, scripts)
        times = right(str(variant), slots, scripts if pins else list(map(_unpinned, scripts)), cache)
        for again, found in zip((False, True), times, strict=False):
            name = f"{variant}, recall" if again else str(variant)
            shares += shares_of(name, budget, questions, found, known, tokens, pins, slots)
    return LongRecallReport(loaded.name, tokens, conversations, positions.window, fits, shares)


def _drawn(
    loaded: Loaded, tokens: int, conversations: int, seed: int, recall: bool = False
) -> tuple[list[Script], list[Question]]:
    """Conversations, and all their questions in order."""
    template = choose(loaded.tokenizer, "auto")
    each = [
        draw(loaded.tokenizer, template, tokens, f"{seed} {number}", recall)
        for number in range(conversations)
    ]
    return [script for script, _ in each], [question for _, asked in each for question in asked]


def _room(variant: PolicyVariant, budget: int, scripts: Sequence[Script]) -> bool:
    """Whether all that is pinned may be."""
    shares = variant.shares(budget)
    return all(shares.sinks + len(script.pins) <= shares.most_protected for script in scripts)


def _unpinned(script: Script) -> Script:
    """Copy of the conversation with nothing pinned."""
    other = copy(script)
    other.pins = set()
    other.messages = [replace(message, pinned=False) for message in script.messages]
    return other


def shares_of(
    policy: str,
    budget: int | None,
    questions: Sequence[Question],
    right: Sequence[bool],
    known: Sequence[bool],
    tokens: int,
    pins: bool = True,
    slots: int | None = None,
) -> list[Share]:
    """By group; none of pinned facts where nothing could be pinned."""
    shares = []
    for group in GROUPS:
        members = [
            number
            for number, question in enumerate(questions)
            if question.kind == group.split(",")[0]
            and (group != "plain, far half" or question.distance >= tokens / 2)
        ]
        if members and (pins or group != "pinned"):
            hits = sum(right[number] for number in members)
            could = [right[number] for number in members if known[number]]
            kept = sum(could) / len(could) if could else None
            interval = wilson(hits, len(members))
            shares.append(Share(policy, budget, group, hits, len(members), interval, kept, slots))
    return shares


def show_table(report: LongRecallReport) -> None:
    """Policies and budgets down, kinds of facts across."""
    from rich.table import Table

    table = Table(
        title=f"{report.model}: {report.conversations} conversations of {report.tokens:,} tokens",
        caption="Share of right answers [95%]; after the slash: of what was answered with nothing between."
        " Empty: nothing could be pinned.",
    )
    for name in ("policy", "slots", *GROUPS):
        table.add_column(name, justify="left" if name == "policy" else "right")
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for share in report.shares:
        low, high = share.interval
        cell = f"{share.right / share.of:.2f} [{low:.2f}, {high:.2f}]"
        if share.kept is not None and share.policy != BARE:
            cell += f" / {share.kept:.2f}"
        lines.setdefault((share.policy, slots_cell(share)), {})[share.group] = cell
    for (variant, slots), cells in lines.items():
        table.add_row(variant, slots, *(cells.get(group, "") for group in GROUPS))
    if not report.full_fits:
        table.add_row("full", "all", f"ends at the window, {report.window:,} tokens")
    print_tables(table)
