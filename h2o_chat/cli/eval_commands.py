"""`h2o-chat lab eval ...`: what forgetting costs on texts and in conversations.

Each prints a table, or with --json one object, on stdout; progress goes to stderr. The lab itself imports
torch, so it is imported inside the commands.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import ExitCode
from h2o_chat.cli import lab_options as lab
from h2o_chat.cli.commands import ends
from h2o_chat.cli.prompt_input import read_script
from h2o_chat.cli.typer_messages import PlainTyper

evaluate = PlainTyper(no_args_is_help=True)


@evaluate.callback()
def _evaluate() -> None:
    """Measure what forgetting costs on your model."""


@evaluate.command()
@ends
def perplexity(
    texts: Annotated[Path, typer.Option(help="A text file, or a .json list of strings.")],
    model: lab.Model = None,
    policies: lab.Policies = None,
    budgets: lab.Budgets = None,
    length: Annotated[int, typer.Option(help="Tokens per document.", min=2)] = 512,
    prompt: Annotated[int, typer.Option(help="First tokens of each document, read as a prompt.", min=0)] = 0,
    quantize: lab.Quantize = "auto",
    dtype: lab.Dtype = "auto",
    threads: lab.Threads = None,
    seed: lab.Seed = 0,
    results: lab.Results = None,
    equal_bytes: lab.EqualBytes = False,
    half: lab.Half = None,
    paired: lab.Paired = False,
    as_json: lab.Json = False,
) -> ExitCode:
    """Perplexity of real text as a ratio to a cache that keeps everything, with intervals."""
    settings = lab.checked(model=model, quantize=quantize, dtype=dtype, threads=threads, seed=seed)
    from h2o_chat.lab.eval import perplexity as task
    from h2o_chat.lab.shared import lab_texts
    from h2o_chat.lab.shared.measured_results import Results as Known
    from h2o_chat.lab.shared.policy_variant import PolicyVariant
    from h2o_chat.lab.shared.report_output import run_eval

    variants = list(map(PolicyVariant.parse, policies or lab.COMPARED))
    found, known = lab_texts.read_texts(texts), Known(results)
    slots = budgets or [32, 64, 128]

    def measure(loaded: Any, tick: Any) -> Any:
        documents = lab_texts.documents(found, loaded.tokenizer, length)
        ids = lab_texts.half_of(documents, half)
        return task.measure(loaded, ids, variants, slots, seed, tick, prompt, equal_bytes, known, paired)

    return run_eval(settings, "read", measure, as_json, task.show_table)


@evaluate.command()
@ends
def recall(
    generate: Annotated[int, typer.Option(metavar="TOKENS", help="Length of a conversation.", min=1)] = 8000,
    conversations: Annotated[int, typer.Option(help="How many.", min=1)] = 16,
    seed: lab.Seed = 0,
    recall: Annotated[bool, typer.Option("--recall", help="Ask again, with recall.")] = False,
    model: lab.Model = None,
    policies: lab.Policies = None,
    budgets: lab.Budgets = None,
    quantize: lab.Quantize = "auto",
    dtype: lab.Dtype = "auto",
    threads: lab.Threads = None,
    results: lab.Results = None,
    as_json: lab.Json = False,
) -> ExitCode:
    """Ask for things told long ago in made-up conversations, which the model answers."""
    settings = lab.checked(model=model, dtype=dtype, threads=threads, seed=seed, quantize=quantize)
    from h2o_chat.lab.eval import answered_recall as task
    from h2o_chat.lab.shared.measured_results import Results as Known
    from h2o_chat.lab.shared.policy_variant import runs_of
    from h2o_chat.lab.shared.report_output import run_eval

    runs, known = runs_of(policies or lab.COMPARED, budgets or [512])[1:], Known(results)

    def measure(loaded: Any, tick: Any) -> Any:
        return task.measure(loaded, generate, conversations, seed, runs, tick, known, recall)

    return run_eval(settings, "answer", measure, as_json, task.show_table)


@evaluate.command()
@ends
def qa(
    items: Annotated[Path, typer.Option(help="One JSON object a line: context, question, answer.")],
    model: lab.Model = None,
    policies: lab.Policies = None,
    budgets: lab.Budgets = None,
    prompt_tokens: Annotated[
        int, typer.Option(help="Tokens of a message at most; its beginning is cut off.", min=16)
    ] = 1910,
    tokens: Annotated[int, typer.Option(help="Tokens of an answer at most.", min=1)] = 128,
    system: Annotated[str | None, typer.Option(help="System prompt.")] = None,
    half: lab.Half = None,
    quantize: lab.Quantize = "auto",
    dtype: lab.Dtype = "auto",
    threads: lab.Threads = None,
    seed: lab.Seed = 0,
    results: lab.Results = None,
    as_json: lab.Json = False,
) -> ExitCode:
    """Questions on long texts as arXiv 2605.18053 asks them, by token F1, with recall and without."""
    settings = lab.checked(
        model=model, dtype=dtype, threads=threads, seed=seed, system=system, quantize=quantize
    )
    from h2o_chat.lab.eval import qa as task
    from h2o_chat.lab.shared.lab_texts import half_of, read_items
    from h2o_chat.lab.shared.measured_results import Results as Known
    from h2o_chat.lab.shared.policy_variant import runs_of
    from h2o_chat.lab.shared.report_output import run_eval

    runs, known = runs_of(policies or ["h2o"], budgets or [256]), Known(results)
    asked = half_of(read_items(items, task.Item), half)

    def measure(loaded: Any, tick: Any) -> Any:
        return task.measure(loaded, asked, runs, system, prompt_tokens, tokens, seed, tick, known)

    return run_eval(settings, "answer", measure, as_json, task.show_table)


@evaluate.command()
@ends
def stuck(
    turns: Annotated[Path, typer.Option(help="Messages, with lines of --- between them.")],
    model: lab.Model = None,
    policies: lab.Policies = None,
    budgets: lab.Budgets = None,
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
    quantize: lab.Quantize = "auto",
    dtype: lab.Dtype = "auto",
    threads: lab.Threads = None,
    as_json: lab.Json = False,
) -> ExitCode:
    """Whether a conversation still answers at its end, or says one sentence to whatever is said."""
    settings = lab.checked(model=model, dtype=dtype, threads=threads, quantize=quantize)
    messages = read_script(turns)
    from h2o_chat.lab.eval import stuck_eval as task
    from h2o_chat.lab.shared.policy_variant import runs_of
    from h2o_chat.lab.shared.report_output import run_eval

    wanted = policies or ["h2o"]
    runs = runs_of([policy for policy in wanted if policy != "full"], budgets or [512])
    runs = runs if "full" in wanted else runs[1:]
    sampling = Sampling(temperature, max_tokens=tokens)
    if temperature:
        sampling = replace(sampling, top_p=top_p, min_p=min_p)

    def measure(loaded: Any, tick: Any) -> Any:
        return task.measure(loaded, messages, runs, sampling, seeds or [0], cured, recall, tick)

    return run_eval(settings, "talk", measure, as_json, task.show_table)
