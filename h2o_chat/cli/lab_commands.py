"""`h2o-chat lab eval ...` and `h2o-chat lab bench ...`: what forgetting costs, and how the program behaves.

Each command prints a table, or with --json one object, on stdout; progress goes to stderr. The lab itself
imports torch, so it is imported inside the commands.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import ExitCode, UsageError
from h2o_chat.cli.commands import ends
from h2o_chat.cli.prompt_input import read_script
from h2o_chat.cli.typer_messages import MODEL, PlainTyper
from h2o_chat.lab.shared.report_output import opened_model, tell
from h2o_chat.models.resolve import POCKET, find

evaluate = PlainTyper(no_args_is_help=True, help="Measure what forgetting costs on your model.")
bench = PlainTyper(no_args_is_help=True, help="How the program behaves on this machine.")

Model = Annotated[
    str | None, typer.Option("--model", "-m", metavar="NAME", help="Model folder or name; else pocket.")
]
Policies = Annotated[
    list[str] | None, typer.Option("--policy", help="E.g. h2o, or h2o:sinks=0,recent=8; repeatable.")
]
Budgets = Annotated[list[int] | None, typer.Option("--budget", "-b", help="Slots; repeatable.")]
OneBudget = Annotated[int, typer.Option("--budget", "-b", help="Slots per layer and KV head.")]
Dtype = Annotated[str, typer.Option(help="Precision; auto: float32 on a CPU.", rich_help_panel=MODEL)]
Quantize = Annotated[str, typer.Option(help="Weights: none, int8, int4, nf4 or auto.", rich_help_panel=MODEL)]
EqualBytes = Annotated[
    bool, typer.Option("--equal-bytes", help="Smaller precisions get as many slots as fit the bytes.")
]
Engine = Annotated[str, typer.Option(help="native, transformers or auto.", rich_help_panel=MODEL)]
Shape = Annotated[
    str | None, typer.Option(help="Instead of a model: random weights of this shape, made for the run.")
]
Threads = Annotated[
    int | None, typer.Option(help="CPU threads.", show_default="all cores but one", rich_help_panel=MODEL)
]
Half = Annotated[str | None, typer.Option(help="even or odd: every second document alone.")]
Paired = Annotated[bool, typer.Option("--paired", help="Each policy also against the first, pair by pair.")]
Seed = Annotated[int, typer.Option(help="Seed of the bootstrap and of all that is drawn.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]

COMPARED = ["h2o", "h2o-paper", "window", "streaming"]
"""Policies that are compared where none is named."""


def checked(**given: Any) -> Settings:
    """Settings, of pocket where no model is named, so that a command means the same on every machine.

    Raises:
        UsageError: a setting that cannot be, or no such model; before two seconds of imports.
    """
    settings = Settings(**given | {"model": given.get("model") or POCKET})
    find(settings.model)
    return settings


@contextmanager
def measured(shape: str | None, model: str | None, seed: int, **given: Any) -> Iterator[Settings]:
    """The settings for a model, or for random weights of a shape, which are gone afterwards.

    Raises:
        UsageError: a setting that cannot be, no such model, no such shape.
    """
    if shape is None:
        yield checked(model=model, seed=seed, **given)
        return
    from h2o_chat.lab.shared.shapes import SHAPES, make

    if shape not in SHAPES:
        raise UsageError(f"Shape {shape!r} is not known.", f"One of: {', '.join(SHAPES)}.")
    with TemporaryDirectory() as folder:
        make(shape, Path(folder), seed)
        yield checked(model=folder, seed=seed, **given)


@evaluate.command()
@ends
def perplexity(
    texts: Annotated[Path, typer.Option(help="A text file, or a .json list of strings.")],
    model: Model = None,
    policies: Policies = None,
    budgets: Budgets = None,
    length: Annotated[int, typer.Option(help="Tokens per document.", min=2)] = 512,
    prompt: Annotated[int, typer.Option(help="First tokens of each document, read as a prompt.", min=0)] = 0,
    quantize: Quantize = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    equal_bytes: EqualBytes = False,
    half: Half = None,
    paired: Paired = False,
    as_json: Json = False,
) -> ExitCode:
    """Tell what a policy costs: perplexity of real text. A ratio to a full cache, with intervals."""
    settings = checked(model=model, quantize=quantize, dtype=dtype, threads=threads, seed=seed)
    from h2o_chat.lab.eval import perplexity as task
    from h2o_chat.lab.shared import lab_texts
    from h2o_chat.lab.shared.policy_variant import PolicyVariant

    variants = list(map(PolicyVariant.parse, policies or COMPARED))
    found, slots = lab_texts.read_texts(texts), budgets or [32, 64, 128]

    with opened_model(settings, "read") as (loaded, tick):
        documents = lab_texts.documents(found, loaded.tokenizer, length)
        ids = lab_texts.half_of(documents, half)
        report = task.measure(loaded, ids, variants, slots, seed, tick, prompt, equal_bytes, paired)
    return tell(report, as_json, task.show_table)


@evaluate.command()
@ends
def recall(
    generate: Annotated[int, typer.Option(metavar="TOKENS", help="Length of a conversation.", min=1)] = 8000,
    conversations: Annotated[int, typer.Option(help="How many.", min=1)] = 16,
    seed: Seed = 0,
    recall: Annotated[bool, typer.Option("--recall", help="Ask again, with recall.")] = False,
    model: Model = None,
    policies: Policies = None,
    budgets: Budgets = None,
    quantize: Quantize = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> ExitCode:
    """Ask for things that were told long ago. The conversations are made up; the model answers."""
    settings = checked(model=model, dtype=dtype, threads=threads, seed=seed, quantize=quantize)
    from h2o_chat.lab.eval import answered_recall as task
    from h2o_chat.lab.shared.policy_variant import runs_of

    runs = runs_of(policies or COMPARED, budgets or [512])[1:]

    with opened_model(settings, "answer") as (loaded, tick):
        report = task.measure(loaded, generate, conversations, seed, runs, tick, recall)
    return tell(report, as_json, task.show_table)


@evaluate.command()
@ends
def qa(
    items: Annotated[Path, typer.Option(help="One JSON object a line: context, question, answer.")],
    model: Model = None,
    policies: Policies = None,
    budgets: Budgets = None,
    tokens: Annotated[int, typer.Option(help="Tokens of an answer at most.", min=1)] = 128,
    recall: Annotated[bool, typer.Option(help="Also with what is gone told again.")] = True,
    system: Annotated[str | None, typer.Option(help="System prompt.")] = None,
    half: Half = None,
    quantize: Quantize = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> ExitCode:
    """Questions on long texts, with and without recall. As arXiv 2605.18053 asks them, by token F1."""
    settings = checked(model=model, dtype=dtype, threads=threads, seed=seed, system=system, quantize=quantize)
    from h2o_chat.lab.eval import qa as task
    from h2o_chat.lab.shared.lab_texts import half_of, read_items
    from h2o_chat.lab.shared.policy_variant import runs_of

    runs = runs_of(policies or ["h2o"], budgets or [256])
    asked = half_of(read_items(items, task.Item), half)

    with opened_model(settings, "answer") as (loaded, tick):
        report = task.measure(loaded, asked, runs, system, tokens, recall, seed, tick)
    return tell(report, as_json, task.show_table)


@evaluate.command()
@ends
def stuck(
    turns: Annotated[Path, typer.Option(help="Messages, with lines of --- between them.")],
    model: Model = None,
    policies: Policies = None,
    budgets: Budgets = None,
    tokens: Annotated[int, typer.Option(help="Tokens of an answer at most.", min=1)] = 40,
    temperature: Annotated[float, typer.Option(help="0: greedy.", min=0)] = 0.0,
    top_p: Annotated[float, typer.Option(min=0, max=1)] = 0.9,
    seeds: Annotated[
        list[int] | None, typer.Option("--seed", help="Seed of the sampling; repeatable.", show_default="0")
    ] = None,
    cured: Annotated[
        bool, typer.Option("--cured/--as-before", help="Whether loops are broken, as in a chat.")
    ] = True,
    quantize: Quantize = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> ExitCode:
    """Whether a long conversation gets stuck. At its end it is asked about the world."""
    settings = checked(model=model, dtype=dtype, threads=threads, quantize=quantize)
    messages = read_script(turns)
    from h2o_chat.lab.eval import stuck_eval as task
    from h2o_chat.lab.shared.policy_variant import runs_of

    wanted = policies or ["h2o"]
    runs = runs_of([policy for policy in wanted if policy != "full"], budgets or [512])
    runs = runs if "full" in wanted else runs[1:]
    sampling = Sampling(temperature, max_tokens=tokens)
    if temperature:
        sampling = replace(sampling, top_p=top_p, min_p=0.05)

    with opened_model(settings, "talk") as (loaded, tick):
        report = task.measure(loaded, messages, runs, sampling, seeds or [0], cured, tick)
    return tell(report, as_json, task.show_table)


@bench.command()
@ends
def speed(
    model: Model = None,
    shape: Shape = None,
    policies: Policies = None,
    budget: OneBudget = 512,
    engine: Engine = "auto",
    quantize: Annotated[
        list[str] | None,
        typer.Option(help="none, int8, int4, nf4 or auto; repeatable. Stock in those of transformers."),
    ] = None,
    seen: Annotated[
        list[int] | None,
        typer.Option(help="Tokens seen before the first that is timed, 640 if not given; repeatable.", min=1),
    ] = None,
    threads: Threads = None,
    prompt: Annotated[int, typer.Option(help="Tokens of the prompt that is timed.", min=2)] = 640,
    turns: Annotated[int, typer.Option(help="Of 32 tokens, by each in turn.", min=1)] = 12,
    dtype: Dtype = "auto",
    seed: Annotated[int, typer.Option(help="Of the tokens.")] = 0,
    as_json: Json = False,
) -> ExitCode:
    """A token, in turns with stock transformers."""
    from h2o_chat.native.threads import let_torch_sleep

    if quantize and set(quantize) <= {"int4", "int8"}:  # stock, which does not sleep, takes no part
        let_torch_sleep(checked(engine=engine))
    given = {"budget": budget, "engine": engine, "dtype": dtype, "threads": threads}
    with measured(shape, model, seed, **given) as settings:
        from h2o_chat.lab.bench.speed import Wanted, run_speed
        from h2o_chat.lab.bench.speed_table import show_speed

        policy: Any = policies or ["h2o"]
        wanted = Wanted(settings, quantize or ["auto"], seen or [640], prompt, turns, seed, policy)
        return tell(run_speed(wanted), as_json, show_speed)


@bench.command()
@ends
def gpu(
    model: Model = None,
    shape: Shape = None,
    budget: OneBudget = 512,
    quantize: Annotated[list[str] | None, typer.Option(help="none or int4; repeatable.")] = None,
    seen: Annotated[
        list[int] | None,
        typer.Option(help="Tokens seen: 512, 4096, 32000, 100000 if not given; repeatable.", min=1),
    ] = None,
    rows: Annotated[
        list[int] | None, typer.Option(help="Conversations at once: 1, 8, 32 if not given.", min=1)
    ] = None,
    prompt: Annotated[int, typer.Option(help="Tokens of the prompt that is timed.", min=2)] = 8192,
    as_json: Json = False,
) -> ExitCode:
    """On a GPU: a token at several lengths; many rows. Beside a copy's bandwidth and stock transformers.

    Stock's full cache is timed where the model's window holds what was seen.
    """
    from h2o_chat.models.choices import choose_device

    choose_device("cuda")  # before weights are made
    how = quantize or ["none"]
    with measured(shape, model, 0, budget=budget, device="cuda", quantize=how[0]) as settings:
        from h2o_chat.lab.bench.gpu import run_gpu, show_gpu
        from h2o_chat.lab.bench.speed import Wanted

        wanted = Wanted(settings, how, seen or [512, 4096, 32_000, 100_000], prompt, turns=6)
        return tell(run_gpu(wanted, rows or [1, 8, 32]), as_json, show_gpu)
