"""The commands that may draw: they read what is asked for, load the model, measure, draw and print.

What is measured stands in the module named for it. All print a table, or one JSON object, on stdout; pictures
go into `folder`, where one is named; progress goes to stderr.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import ExitCode, UsageError
from h2o_chat.base.progress import progress_bar
from h2o_chat.lab.eval import (
    agreement,
    generate,
    long_recall,
    paper_plots,
    perplexity,
    perplexity_table,
    plots,
    qa,
)
from h2o_chat.lab.eval import (
    answered_recall as answered,
)
from h2o_chat.lab.eval import (
    attention_figures as observe,
)
from h2o_chat.lab.eval import (
    recall_questions as recall,
)
from h2o_chat.lab.eval import (
    stuck_eval as stuck,
)
from h2o_chat.lab.shared.lab_texts import documents, half_of, read_items, read_texts
from h2o_chat.lab.shared.measured_results import Results
from h2o_chat.lab.shared.pictures import check
from h2o_chat.lab.shared.policy_runs import Run, runs_of
from h2o_chat.lab.shared.policy_variant import crossed
from h2o_chat.lab.shared.report_output import tell
from h2o_chat.models.load import load
from h2o_chat.native.loading import open_model

Found = TypeVar("Found")


def run_perplexity(
    settings: Settings,
    texts: Path,
    policies: Sequence[str],
    budgets: Sequence[int],
    length: int,
    as_json: bool,
    prompt: int = 0,
    readings: Sequence[perplexity.Reading] = (perplexity.Reading(),),
    kv_dtypes: Sequence[str] = (),
    equal_bytes: bool = False,
    folder: Path | None = None,
    results: Path | None = None,
    half: str | None = None,
    paired: bool = False,
) -> ExitCode:
    """`eval perplexity --texts`."""
    contestants = crossed(policies, kv_dtypes)
    found, known = read_texts(texts), Results(results)
    check(folder)
    with progress_bar() as show:
        loaded = open_model(settings, show)
        ids = half_of(documents(found, loaded.tokenizer, length), half)
        seed, tick = settings.seed or 0, partial(show, "read")
        report = perplexity.measure(
            loaded, ids, contestants, budgets, seed, tick, prompt, readings, equal_bytes, known, paired
        )
    return _end(report, as_json, perplexity_table.show_table, folder, plots.plot_perplexity)


def run_recall(
    settings: Settings,
    questions: Path,
    policies: Sequence[str],
    budgets: Sequence[int],
    as_json: bool,
    results: Path | None = None,
    kv_dtypes: Sequence[str] = (),
    equal_bytes: bool = False,
    folder: Path | None = None,
) -> ExitCode:
    """`eval recall --questions`."""
    contestants = crossed(policies, kv_dtypes)
    found, known = recall.read_questions(questions), Results(results)
    check(folder)
    with progress_bar() as show:
        loaded, tick = open_model(settings, show), partial(show, "answer")
        report = recall.measure(loaded, found, contestants, budgets, tick, known, equal_bytes)
    return _end(report, as_json, recall.show_table, folder, plots.plot_recall)


def run_long_recall(
    settings: Settings,
    tokens: int,
    conversations: int,
    policies: Sequence[str],
    budgets: Sequence[int],
    as_json: bool,
    results: Path | None = None,
    kv_dtypes: Sequence[str] = (),
    equal_bytes: bool = False,
    folder: Path | None = None,
    recall: bool = False,
    paired: bool = False,
    pasted: bool = False,
    scripted: bool = False,
) -> ExitCode:
    """`eval recall --generate`: a model that chats answers itself, unless the answers are `scripted`."""
    contestants, known = crossed(policies, kv_dtypes), Results(results)
    check(folder)
    with progress_bar() as show:
        loaded, tick = open_model(settings, show), partial(show, "answer")
        if loaded.chats and not scripted:
            runs = [Run(one, budget) for one in contestants for budget in budgets]
            seed = settings.seed or 0
            report = answered.measure(loaded, tokens, conversations, seed, runs, tick, known, recall)
            return _end(report, as_json, long_recall.show_table, folder, plots.plot_long_recall)
        report = long_recall.measure_long(
            loaded,
            tokens,
            conversations,
            settings.seed or 0,
            contestants,
            budgets,
            tick,
            known,
            equal_bytes,
            recall,
            paired,
            pasted,
        )
    return _end(report, as_json, long_recall.show_table, folder, plots.plot_long_recall)


def run_agreement(
    settings: Settings,
    texts: Path,
    policies: Sequence[str],
    budgets: Sequence[int],
    prompt: int,
    tokens: int,
    most_prompts: int,
    as_json: bool,
    folder: Path | None = None,
    results: Path | None = None,
    half: str | None = None,
    paired: bool = False,
) -> ExitCode:
    """`eval agreement`."""
    runs, found, known = runs_of(policies, budgets), read_texts(texts), Results(results)
    check(folder)
    with progress_bar() as show:
        loaded = load(settings, show)
        # Cut as long as they would be with what follows, so that prompts are no neighbours.
        cut = half_of(documents(found, loaded.tokenizer, prompt + tokens), half)
        prompts = cut[:most_prompts, :prompt]
        tick = partial(show, "continue")
        report = agreement.measure(loaded, prompts, runs, tokens, settings.seed or 0, tick, known, paired)
    return _end(report, as_json, agreement.show_table, folder, plots.plot_agreement)


def run_generate(
    settings: Settings,
    file: Path,
    policies: Sequence[str],
    budgets: Sequence[int],
    tokens: int,
    stop: tuple[str, ...],
    as_json: bool,
    folder: Path | None,
    results: Path | None = None,
) -> ExitCode:
    """`eval generate`."""
    runs, items, known = runs_of(policies, budgets), read_items(file, generate.Item), Results(results)
    check(folder)
    generate.rouge_scorer()  # says what is missing before the model is loaded
    with progress_bar() as show:
        loaded = open_model(settings, show)
        seed, tick = settings.seed or 0, partial(show, "answer")
        report = generate.measure(loaded, items, runs, tokens, stop, settings.chunk, seed, tick, known)
    return _end(report, as_json, generate.show_table, folder, paper_plots.plot_generate)


def run_qa(
    settings: Settings,
    items: Path,
    policies: Sequence[str],
    budgets: Sequence[int],
    prompt_tokens: int,
    answer_tokens: int,
    half: str | None,
    as_json: bool,
    results: Path | None,
) -> ExitCode:
    """`eval qa`."""
    runs, known = runs_of(policies, budgets), Results(results)
    asked = half_of(read_items(items, qa.Item), half)
    with progress_bar() as show:
        loaded = open_model(settings, show)
        seed, tick = settings.seed or 0, partial(show, "answer")
        report = qa.measure(
            loaded, asked, runs, settings.system, prompt_tokens, answer_tokens, seed, tick, known
        )
    return tell(report, as_json, qa.show_table)


def run_stuck(
    settings: Settings,
    messages: Sequence[str],
    policies: Sequence[str],
    budgets: Sequence[int],
    sampling: Sampling,
    seeds: Sequence[int],
    cured: bool,
    recall: bool,
    as_json: bool,
) -> ExitCode:
    """`eval stuck`; the cache that keeps everything only where it is named."""
    runs = runs_of([policy for policy in policies if policy != "full"], budgets)
    runs = runs if "full" in policies else runs[1:]
    with progress_bar() as show:
        loaded, tick = open_model(settings, show), partial(show, "talk")
        report = stuck.measure(loaded, messages, runs, sampling, seeds, cured, recall, tick)
    return tell(report, as_json, stuck.show_table)


def run_observe(
    settings: Settings,
    texts: Path,
    length: int,
    most: int,
    parts: Sequence[str],
    as_json: bool,
    folder: Path | None,
) -> ExitCode:
    """`eval observe`."""
    unknown = [part for part in parts if part not in observe.PARTS]
    if unknown:
        raise UsageError(f"There is no part {unknown[0]!r}.", f"One of: {', '.join(observe.PARTS)}.")
    found = read_texts(texts)
    check(folder)
    with progress_bar() as show:
        loaded = load(settings, show)
        ids = documents(found, loaded.tokenizer, length)[:most]
        report = observe.measure(loaded, ids, parts, settings.seed or 0, partial(show, "observe"))
    return _end(report, as_json, observe.show_tables, folder, paper_plots.plot_observe)


def _end(
    found: Found,
    as_json: bool,
    show: Callable[[Found], None],
    folder: Path | None,
    draw: Callable[[Found, Path], object],
) -> ExitCode:
    """Draws, where pictures are wanted, and prints."""
    if folder is not None:
        draw(found, folder)
    return tell(found, as_json, show)
