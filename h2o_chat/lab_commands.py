"""`h2o-chat eval ...` and `h2o-chat bench ...`: what the lab measures, on the command line.

Each prints a table, or with --json one object, on stdout; progress goes to stderr. The lab itself imports
torch, so it is imported inside the commands.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from h2o_chat.config import KvDtype, Settings
from h2o_chat.errors import ExitCode, UsageError

evaluate = typer.Typer(no_args_is_help=True)
bench = typer.Typer(no_args_is_help=True)

Model = Annotated[str | None, typer.Option("--model", "-m", metavar="NAME", help="Model folder or name.")]
Dtype = Annotated[str, typer.Option(help="Precision; auto: float32 on a CPU.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads.", show_default="all cores but one")]
Results = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Kept as they come, one JSON object a line; goes on there."),
]
Plot = Annotated[Path | None, typer.Option(metavar="DIR", help="Pictures into this folder.")]
OneKvDtype = Annotated[KvDtype, typer.Option("--kv-dtype", help="Precision of the memory.")]
KvDtypes = Annotated[
    list[str] | None,
    typer.Option("--kv-dtype", help="Precision of the memory; repeatable: every policy in each."),
]
EqualBytes = Annotated[
    bool,
    typer.Option(
        "--equal-bytes", help="Smaller precisions get more slots: as many as fit into the budget's bytes."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


@evaluate.callback()
def _evaluate() -> None:
    """What forgetting costs on your model."""


@bench.callback()
def _bench() -> None:
    """How the program behaves on this machine."""


@evaluate.command()
def perplexity(
    texts: Annotated[Path | None, typer.Option(help="A text file, or a .json list of strings.")] = None,
    sampled: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS", help="In place of texts: as much as this, drawn from the model itself.", min=1
        ),
    ] = None,
    streams: Annotated[int, typer.Option(help="Of those tokens, read side by side.", min=1)] = 4,
    model: Model = None,
    policies: Annotated[
        list[str] | None, typer.Option("--policy", help="E.g. h2o, or h2o:sinks=0,recent=8; repeatable.")
    ] = None,
    budgets: Annotated[list[int] | None, typer.Option("--budget", "-b", help="Slots; repeatable.")] = None,
    length: Annotated[int, typer.Option(help="Tokens per document.", min=2)] = 512,
    prompt: Annotated[
        int | None,
        typer.Option(
            help="First tokens of each document, read as a prompt.",
            show_default="0; half of the document with --prefill or --chunk",
            min=0,
        ),
    ] = None,
    prefills: Annotated[
        list[str] | None, typer.Option("--prefill", help="chunked or full; repeatable.")
    ] = None,
    chunks: Annotated[
        list[int] | None,
        typer.Option(
            "--chunk", help="Prompt tokens read at once; repeatable.", show_default="budget / 4", min=1
        ),
    ] = None,
    dtype: Dtype = "auto",
    threads: Threads = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap, and of what is drawn.")] = 0,
    plot: Plot = None,
    kv_dtypes: KvDtypes = None,
    equal_bytes: EqualBytes = False,
    as_json: Json = False,
) -> None:
    """Perplexity of real text as a ratio to a cache that keeps everything, with intervals."""

    def work() -> ExitCode:
        if (texts is None) == (sampled is None):
            raise UsageError("Give either --texts or --sampled: what is to be read.")
        if sampled is not None and (prompt or prefills or chunks):
            raise UsageError("--sampled has no prompts.", "--prompt, --prefill and --chunk go with --texts.")
        settings = Settings(model=model, dtype=dtype, threads=threads, seed=seed)  # type: ignore[arg-type]
        _check(settings)
        wanted = policies or ["h2o", "h2o-paper", "window", "streaming"]
        if texts is None:
            from h2o_chat.lab.sampled import run_sampled

            return run_sampled(settings, sampled or 0, streams, wanted, budgets or [64], as_json, plot)
        from h2o_chat.lab.perplexity import Reading, run_perplexity

        readings = [
            Reading(prefill, chunk)
            for prefill in prefills or ["chunked"]
            for chunk in ((None,) if prefill == "full" else chunks or (None,))
        ]
        read = prompt if prompt is not None else length // 2 if prefills or chunks else 0
        return run_perplexity(
            settings,
            texts,
            wanted,
            budgets or [32, 64, 128],
            length,
            as_json,
            read,
            readings,
            kv_dtypes or (),
            equal_bytes,
            plot,
        )

    _end(work)


@evaluate.command()
def recall(
    questions: Annotated[
        Path | None, typer.Option(help="One JSON object a line: messages, distance, expected, stale, kind.")
    ] = None,
    generate: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS", help="Instead of --questions: make up conversations this long.", min=1
        ),
    ] = None,
    conversations: Annotated[int, typer.Option(help="With --generate: how many.", min=1)] = 16,
    seed: Annotated[int, typer.Option(help="With --generate: of what is made up.")] = 0,
    model: Model = None,
    policies: Annotated[
        list[str] | None, typer.Option("--policy", help="E.g. h2o, or h2o:sinks=0,recent=8; repeatable.")
    ] = None,
    budgets: Annotated[list[int] | None, typer.Option("--budget", "-b", help="Slots; repeatable.")] = None,
    dtype: Dtype = "auto",
    threads: Threads = None,
    results: Results = None,
    plot: Plot = None,
    kv_dtypes: KvDtypes = None,
    equal_bytes: EqualBytes = False,
    as_json: Json = False,
) -> None:
    """What is still known of things told long ago, against a cache that keeps everything."""

    def work() -> ExitCode:
        settings = Settings(model=model, dtype=dtype, threads=threads, seed=seed)  # type: ignore[arg-type]
        wanted, slots = policies or ["h2o", "h2o-paper", "window", "streaming"], budgets
        if (questions is None) == (generate is None):
            raise UsageError(
                "What shall be asked?", "Give --questions FILE or --generate TOKENS, one of them."
            )
        _check(settings)
        if generate is not None:
            from h2o_chat.lab.long_recall import run_long_recall

            return run_long_recall(
                settings, generate, conversations, wanted, slots or [512], as_json, results
            )
        from h2o_chat.lab.recall import run_recall

        assert questions is not None
        asked, kv = slots or [64, 128, 256, 512], kv_dtypes or ()
        return run_recall(settings, questions, wanted, asked, as_json, results, kv, equal_bytes, plot)

    _end(work)


@bench.command()
def bounded(
    model: Model = None,
    budget: Annotated[int, typer.Option("--budget", "-b", help="Slots per layer and KV head.")] = 64,
    tokens: Annotated[int, typer.Option(help="Length of the conversation.", min=3000)] = 20_000,
    dtype: Dtype = "auto",
    kv_dtype: OneKvDtype = "auto",
    threads: Threads = None,
    seed: Annotated[int, typer.Option(help="Of the sampling.")] = 0,
    as_json: Json = False,
) -> None:
    """Does anything grow? Slots, memory, time per token and position index of one long conversation."""

    def work() -> ExitCode:
        settings = Settings(
            model=model,
            budget=budget,
            dtype=dtype,  # type: ignore[arg-type]
            kv_dtype=kv_dtype,
            threads=threads,
            seed=seed,
        )
        _check(settings)
        from h2o_chat.lab.bounded import run_bounded

        _print(run_bounded(settings, tokens), as_json)
        return ExitCode.OK

    _end(work)


@bench.command()
def rounding(
    tokens: Annotated[int, typer.Option(help="Length of the conversation.", min=1)] = 1_000_000,
    window: Annotated[int, typer.Option(help="Tokens the model was trained for.", min=64)] = 2048,
    as_json: Json = False,
) -> None:
    """How far the oldest key has drifted after a conversation of this length, by precision (simulated)."""

    def work() -> ExitCode:
        from h2o_chat.lab.bounded import rounding_table

        _print(rounding_table(tokens, window), as_json)
        return ExitCode.OK

    _end(work)


@bench.command()
def soak(
    folder: Annotated[Path, typer.Argument(help="Where the conversation is kept; run again to go on.")],
    model: Model = None,
    budget: Annotated[int, typer.Option("--budget", "-b", help="Slots per layer and KV head.")] = 64,
    tokens: Annotated[int, typer.Option(help="Length of the conversation.", min=1)] = 1_000_000,
    dtype: Dtype = "auto",
    kv_dtype: OneKvDtype = "auto",
    threads: Threads = None,
    seed: Annotated[int, typer.Option(help="Of the sampling.")] = 0,
    as_json: Json = False,
) -> None:
    """A stored conversation of a million tokens: memory, time, files, positions, rounding, as it grows."""

    def work() -> ExitCode:
        settings = Settings(
            model=model,
            budget=budget,
            dtype=dtype,  # type: ignore[arg-type]
            kv_dtype=kv_dtype,
            threads=threads,
            seed=seed,
        )
        _check(settings)
        from h2o_chat.lab.soak import run_soak

        _print(run_soak(settings, folder, tokens), as_json)
        return ExitCode.OK

    _end(work)


@bench.command()
def store(
    conversations: Annotated[int, typer.Option(help="How many.", min=1)] = 2000,
    messages: Annotated[int, typer.Option(help="In all of them.", min=1)] = 200_000,
    seed: Annotated[int, typer.Option(help="Of the words.")] = 0,
    as_json: Json = False,
) -> None:
    """Listing, searching and opening many stored conversations: in a temporary folder, not in yours."""

    def work() -> ExitCode:
        from h2o_chat.lab.store_bench import run_store

        _print(run_store(conversations, messages, seed), as_json)
        return ExitCode.OK

    _end(work)


@bench.command()
def ui(
    model: Model = None,
    budget: Annotated[int, typer.Option("--budget", "-b", help="Slots per layer and KV head.")] = 512,
    turns: Annotated[int, typer.Option(help="Of the conversation on the screen.", min=1)] = 500,
    tokens: Annotated[int, typer.Option(help="Of an answer, streamed and generated.", min=32)] = 1000,
    rounds: Annotated[
        int, typer.Option(help="Answers generated with the screen, and as many without.", min=0)
    ] = 5,
    dtype: Dtype = "auto",
    threads: Threads = None,
    seed: Annotated[int, typer.Option(help="Of the words.")] = 0,
    as_json: Json = False,
) -> None:
    """How soon the screen answers beside a long conversation, and what it takes from the engine."""

    def work() -> ExitCode:
        settings = Settings(
            model=model,
            budget=budget,
            dtype=dtype,  # type: ignore[arg-type]
            threads=threads,
        )
        _check(settings)
        from h2o_chat.lab.ui_bench import run_ui

        _print(run_ui(settings, turns, tokens, rounds, seed), as_json)
        return ExitCode.OK

    _end(work)


def _check(settings: Settings) -> None:
    """Says what is wrong with the model's name before two seconds of imports."""
    from h2o_chat.resolve import find

    find(settings.model)


def _end(work: Callable[[], ExitCode]) -> None:
    from h2o_chat.run import ending

    raise typer.Exit(ending(work))


def _print(results: list[Any], as_json: bool) -> None:
    """A few results beside each other, one row per field; many below each other, one column per field."""
    rows = [asdict(result) for result in results]
    if as_json:
        sys.stdout.write(json.dumps(rows) + "\n")
        return
    from rich.console import Console
    from rich.table import Table

    cells = [[name, *(_shown(row[name]) for row in rows)] for name in rows[0]]
    if len(rows) > 4:
        cells = [list(line) for line in zip(*cells, strict=True)]
    table = Table(show_header=False)
    for line in cells:
        table.add_row(*line)
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 200).print(table)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
