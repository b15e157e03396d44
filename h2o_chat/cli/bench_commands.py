"""`h2o-chat lab bench ...`: how the program behaves, on the command line.

As in `eval_commands.py`, the lab imports torch, so it is imported inside the commands.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from h2o_chat.base.errors import ExitCode
from h2o_chat.cli import verdicts
from h2o_chat.cli.lab_options import (
    Dtype,
    Engine,
    Json,
    Model,
    OneBudget,
    OneKvDtype,
    Policies,
    Quantize,
    Shape,
    Threads,
    checked,
    end,
    measured,
)
from h2o_chat.cli.typer_messages import PlainTyper
from h2o_chat.lab.shared.report_output import print_tables, tell

bench = PlainTyper(no_args_is_help=True)


@bench.callback()
def _bench() -> None:
    """How the program behaves on this machine."""


@bench.command()
def bounded(
    model: Model = None,
    budget: OneBudget = 64,
    tokens: Annotated[int, typer.Option(help="Length of the conversation.", min=3000)] = 20_000,
    dtype: Dtype = "auto",
    kv_dtype: OneKvDtype = "auto",
    threads: Threads = None,
    seed: Annotated[int, typer.Option(help="Of the sampling.")] = 0,
    as_json: Json = False,
) -> None:
    """Does anything grow? Slots, memory, time per token and position index of one long conversation."""

    def work() -> ExitCode:
        settings = checked(
            model=model, budget=budget, dtype=dtype, kv_dtype=kv_dtype, threads=threads, seed=seed
        )
        from h2o_chat.lab.bench.bounded import run_bounded

        return tell(run_bounded(settings, tokens), as_json, _showing(verdicts.bounded))

    end(work)


@bench.command()
def soak(
    folder: Annotated[Path, typer.Argument(help="Where the conversation is kept; run again to go on.")],
    model: Model = None,
    budget: OneBudget = 64,
    tokens: Annotated[int, typer.Option(help="Length of the conversation.", min=1)] = 1_000_000,
    dtype: Dtype = "auto",
    kv_dtype: OneKvDtype = "auto",
    threads: Threads = None,
    seed: Annotated[int, typer.Option(help="Of the sampling.")] = 0,
    as_json: Json = False,
) -> None:
    """A stored conversation of a million tokens: memory, time, files, positions, rounding, as it grows."""

    def work() -> ExitCode:
        settings = checked(
            model=model, budget=budget, dtype=dtype, kv_dtype=kv_dtype, threads=threads, seed=seed
        )
        from h2o_chat.lab.bench.soak import run_soak

        return tell(run_soak(settings, folder, tokens), as_json, _showing(verdicts.soak))

    end(work)


@bench.command()
def ui(
    model: Model = None,
    budget: OneBudget = 512,
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
        settings = checked(model=model, budget=budget, dtype=dtype, threads=threads)
        from h2o_chat.lab.bench.ui_bench import run_ui

        return tell(run_ui(settings, turns, tokens, rounds, seed), as_json, _showing(verdicts.ui))

    end(work)


@bench.command()
def speed(
    model: Model = None,
    shape: Shape = None,
    policy: Policies = None,
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
    threads: Annotated[
        list[int] | None, typer.Option(help="CPU threads; repeatable: stock has the first.", min=1)
    ] = None,
    prompt: Annotated[int, typer.Option(help="Tokens of the prompt that is timed.", min=2)] = 640,
    turns: Annotated[int, typer.Option(help="Of 32 tokens, by each in turn.", min=1)] = 12,
    dtype: Dtype = "auto",
    seed: Annotated[int, typer.Option(help="Of the tokens.")] = 0,
    as_json: Json = False,
) -> None:
    """A token of this program beside one of stock transformers, in turns."""

    def work() -> ExitCode:
        from h2o_chat.native.spin_wait import let_torch_sleep

        if quantize and set(quantize) <= {"int4", "int8"}:  # stock, which does not sleep, takes no part
            let_torch_sleep(checked(engine=engine))
        with measured(shape, model, seed, budget=budget, engine=engine, dtype=dtype) as settings:
            from h2o_chat.lab.bench.speed import Wanted, run_speed
            from h2o_chat.lab.bench.speed_table import show_speed

            wanted = Wanted(
                settings,
                policies=policy or ["h2o"],
                quantize=quantize or ["auto"],
                seen=seen or [640],
                threads=threads or [],
                prompt=prompt,
                turns=turns,
                seed=seed,
            )
            return tell(run_speed(wanted), as_json, show_speed)

    end(work)


@bench.command()
def rows(
    model: Model = None,
    shape: Shape = None,
    rows: Annotated[
        list[int] | None,
        typer.Option(help="Conversations at once; repeatable: 1, 4, 16 and 64 if not given.", min=1),
    ] = None,
    budget: OneBudget = 512,
    engine: Engine = "auto",
    quantize: Quantize = "auto",
    kv_dtype: OneKvDtype = "auto",
    threads: Threads = None,
    turns: Annotated[int, typer.Option(help="Of 32 tokens a row, by each number in turn.", min=1)] = 6,
    seed: Annotated[int, typer.Option(help="Of the tokens.")] = 0,
    as_json: Json = False,
) -> None:
    """Tokens per second of many conversations in one process (`run --batch`), in turns."""

    def work() -> ExitCode:
        how = {"engine": engine, "quantize": quantize, "kv_dtype": kv_dtype, "threads": threads}
        with measured(shape, model, seed, budget=budget, **how) as settings:
            from h2o_chat.lab.bench.rows_bench import run_rows, show_rows

            def show(found: list[Any]) -> None:
                show_rows(found)
                typer.echo(verdicts.rows(found, threads is not None))

            return tell(run_rows(settings, rows or [1, 4, 16, 64], turns, seed), as_json, show)

    end(work)


def _showing(verdict: Callable[[Any], str]) -> Callable[[Sequence[Any]], None]:
    """Returns a function that shows results and ends with their verdict."""

    def show(results: Sequence[Any]) -> None:
        _show(results)
        typer.echo(verdict(results))

    return show


def _show(results: Sequence[Any]) -> None:
    """A few results beside each other, one row per field; many below each other, one column per field."""
    from rich.table import Table

    rows = [asdict(result) for result in results]
    cells = [[name, *(_shown(row[name]) for row in rows)] for name in rows[0]]
    if len(rows) > 4:
        cells = [list(line) for line in zip(*cells, strict=True)]
    table = Table(show_header=False)
    for line in cells:
        table.add_row(*line)
    print_tables(table)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
