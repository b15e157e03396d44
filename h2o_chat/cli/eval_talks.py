"""`h2o-chat lab eval recall`, `qa` and `stuck`: what becomes of conversations."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import ExitCode, UsageError
from h2o_chat.cli.lab_options import (
    COMPARED,
    Budgets,
    Dtype,
    EqualBytes,
    Half,
    Json,
    KvDtypes,
    Model,
    Policies,
    Quantize,
    Results,
    Seed,
    Threads,
    checked,
    end,
)
from h2o_chat.cli.prompt_input import read_script


def recall(
    questions: Annotated[
        Path | None, typer.Option(help="JSON lines: messages, distance, expected, stale, kind.")
    ] = None,
    generate: Annotated[
        int | None,
        typer.Option(metavar="TOKENS", help="In place of --questions: conversations this long.", min=1),
    ] = None,
    conversations: Annotated[int, typer.Option(help="With --generate: how many.", min=1)] = 16,
    seed: Seed = 0,
    recall: Annotated[
        bool, typer.Option("--recall", help="With --generate: ask again, with recall.")
    ] = False,
    scripted: Annotated[
        bool, typer.Option("--scripted", help="With --generate: answers are made up too.")
    ] = False,
    model: Model = None,
    policies: Policies = None,
    budgets: Budgets = None,
    quantize: Quantize = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    results: Results = None,
    kv_dtypes: KvDtypes = None,
    equal_bytes: EqualBytes = False,
    as_json: Json = False,
) -> None:
    """Ask for things told long ago, and compare with a cache that keeps everything."""

    def work() -> ExitCode:
        settings = checked(model=model, dtype=dtype, threads=threads, seed=seed, quantize=quantize)
        if (questions is None) == (generate is None):
            raise UsageError(
                "What shall be asked?", "Give --questions FILE or --generate TOKENS, one of them."
            )
        if generate is None and scripted:
            raise UsageError("--scripted goes with --generate.")
        if equal_bytes and generate is not None and not scripted:
            raise UsageError("--equal-bytes goes with --generate --scripted.")
        from h2o_chat.lab.eval import answered_recall, long_recall, recall_questions
        from h2o_chat.lab.eval.run_eval import run_eval
        from h2o_chat.lab.shared.measured_results import Results as Known
        from h2o_chat.lab.shared.policy_runs import Run
        from h2o_chat.lab.shared.policy_variant import crossed

        variants, known = crossed(policies or COMPARED, kv_dtypes or ()), Known(results)
        if generate is None:
            assert questions is not None
            asked, few = recall_questions.read_questions(questions), budgets or [64, 128, 256, 512]

            def answer(loaded: Any, tick: Any) -> Any:
                return recall_questions.measure(loaded, asked, variants, few, tick, known, equal_bytes)

            return run_eval(settings, "answer", answer, as_json, recall_questions.show_table)
        slots = budgets or [512]

        def measure(loaded: Any, tick: Any) -> Any:
            about = loaded, generate, conversations, seed
            if loaded.chats and not scripted:
                runs = [Run(one, budget) for one in variants for budget in slots]
                return answered_recall.measure(*about, runs, tick, known, recall)
            return long_recall.measure_long(*about, variants, slots, tick, known, equal_bytes, recall)

        return run_eval(settings, "answer", measure, as_json, long_recall.show_table)

    end(work)


def qa(
    items: Annotated[Path, typer.Option(help="One JSON object a line: context, question, answer.")],
    model: Model = None,
    policies: Policies = None,
    budgets: Budgets = None,
    prompt_tokens: Annotated[
        int, typer.Option(help="Tokens of a message at most; its beginning is cut off.", min=16)
    ] = 1910,
    tokens: Annotated[int, typer.Option(help="Tokens of an answer at most.", min=1)] = 128,
    system: Annotated[str | None, typer.Option(help="System prompt.")] = None,
    half: Half = None,
    quantize: Quantize = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    results: Results = None,
    as_json: Json = False,
) -> None:
    """Questions on long texts as arXiv 2605.18053 asks them, by token F1, with recall and without."""

    def work() -> ExitCode:
        settings = checked(
            model=model, dtype=dtype, threads=threads, seed=seed, system=system, quantize=quantize
        )
        from h2o_chat.lab.eval import qa as task
        from h2o_chat.lab.eval.run_eval import run_eval
        from h2o_chat.lab.shared.lab_texts import half_of, read_items
        from h2o_chat.lab.shared.measured_results import Results as Known
        from h2o_chat.lab.shared.policy_runs import runs_of

        runs, known = runs_of(policies or ["h2o"], budgets or [256]), Known(results)
        asked = half_of(read_items(items, task.Item), half)

        def measure(loaded: Any, tick: Any) -> Any:
            return task.measure(loaded, asked, runs, system, prompt_tokens, tokens, seed, tick, known)

        return run_eval(settings, "answer", measure, as_json, task.show_table)

    end(work)


def stuck(
    turns: Annotated[Path, typer.Option(help="Messages, with lines of --- between them.")],
    model: Model = None,
    policies: Policies = None,
    budgets: Budgets = None,
    tokens: Annotated[int, typer.Option(help="Tokens of an answer at most.", min=1)] = 40,
    temperature: Annotated[float, typer.Option(help="0: greedy.", min=0)] = 0.0,
    top_p: Annotated[float, typer.Option(min=0, max=1)] = 0.9,
    min_p: Annotated[float, typer.Option(min=0, max=1)] = 0.05,
    seeds: Annotated[
        list[int] | None, typer.Option("--seed", help="Seed of the sampling; repeatable.", show_default="0")
    ] = None,
    cured: Annotated[
        bool, typer.Option("--cured/--as-before", help="Whether loops are broken, as in a chat.")
    ] = True,
    recall: Annotated[bool, typer.Option(help="Whether what is gone is recalled.")] = True,
    quantize: Quantize = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Whether a conversation still answers at its end, or says one sentence to whatever is said."""

    def work() -> ExitCode:
        settings = checked(model=model, dtype=dtype, threads=threads, quantize=quantize)
        messages = read_script(turns)
        from h2o_chat.lab.eval import stuck_eval as task
        from h2o_chat.lab.eval.run_eval import run_eval
        from h2o_chat.lab.shared.policy_runs import runs_of

        wanted = policies or ["h2o"]
        runs = runs_of([policy for policy in wanted if policy != "full"], budgets or [512])
        runs = runs if "full" in wanted else runs[1:]
        sampling = Sampling(temperature, max_tokens=tokens)
        if temperature:
            sampling = replace(sampling, top_p=top_p, min_p=min_p)

        def measure(loaded: Any, tick: Any) -> Any:
            return task.measure(loaded, messages, runs, sampling, seeds or [0], cured, recall, tick)

        return run_eval(settings, "talk", measure, as_json, task.show_table)

    end(work)
