"""`h2o-chat bench ...`: how the program behaves, on the command line.

As in `eval_commands.py`, the lab imports torch, so it is imported inside the commands.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from h2o_chat.base.errors import ExitCode, UsageError
from h2o_chat.cli import verdicts
from h2o_chat.cli.bench_full import full
from h2o_chat.cli.lab_options import (
    Dtype,
    Json,
    Model,
    OneBudget,
    OneKvDtype,
    Plot,
    Policies,
    Threads,
    checked,
    end,
    made,
    measured,
)
from h2o_chat.cli.typer_messages import PlainTyper
from h2o_chat.lab.output import print_tables, tell

bench = PlainTyper(no_args_is_help=True)
bench.command()(full)


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
        from h2o_chat.lab.bounded import run_bounded

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
        from h2o_chat.lab.soak import run_soak

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
        from h2o_chat.lab.ui_bench import run_ui

        return tell(run_ui(settings, turns, tokens, rounds, seed), as_json, _showing(verdicts.ui))

    end(work)


@bench.command()
def speed(
    model: Model = None,
    shape: Annotated[
        str | None, typer.Option(help="Instead of a model: random weights of this shape, made for the run.")
    ] = None,
    policy: Policies = None,
    budget: OneBudget = 512,
    engine: Annotated[str, typer.Option(help="Ours: native, transformers or auto.")] = "auto",
    quantize: Annotated[
        list[str] | None,
        typer.Option(help="none, int8, int4, nf4 or auto; repeatable. Stock in those of transformers."),
    ] = None,
    seen: Annotated[
        list[int] | None,
        typer.Option(help="Tokens seen before the first that is timed, 640 if not given; repeatable.", min=1),
    ] = None,
    threads: Annotated[
        list[int] | None,
        typer.Option(help="CPU threads; repeatable: stock and peers have the first.", min=1),
    ] = None,
    sampled: Annotated[
        bool, typer.Option("--sampled", help="Ours with the screen's own sampling too.")
    ] = False,
    busy: Annotated[
        int, typer.Option(help="Other processes that keep a core busy each meanwhile.", min=0)
    ] = 0,
    peers: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Another program, or all of them; repeatable; a wrong name lists them."
        ),
    ] = None,
    peers_folder: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Made by tools/make_peers.py.")
    ] = None,
    peer_format: Annotated[
        list[str] | None, typer.Option(help="q4_0, q8_0 or q4_0+q8_0 (embedding and head); repeatable.")
    ] = None,
    peer_seen: Annotated[
        list[int] | None,
        typer.Option(help="512, 2,048 and 8,192 if not given, as the window allows; repeatable.", min=1),
    ] = None,
    prompt: Annotated[int, typer.Option(help="Tokens of the prompt that is timed.", min=2)] = 640,
    turns: Annotated[int, typer.Option(help="Of 32 tokens, by each in turn.", min=1)] = 12,
    dtype: Dtype = "auto",
    seed: Annotated[int, typer.Option(help="Of the tokens.")] = 0,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """A token of this program beside one of stock transformers and of other programs, in turns."""

    def work() -> ExitCode:
        from h2o_chat.lab import pictures
        from h2o_chat.native.waiting import let_torch_sleep

        if quantize and set(quantize) <= {
            "int4",
            "int8",
        }:  # as the program does; stock, which is not here, does not
            let_torch_sleep(checked(engine=engine))
        pictures.check(plot)
        others = _peers(peers or [], peers_folder, peer_format or [])
        with made(shape, seed) as random_model:
            name = str(random_model) if random_model else model
            settings = checked(model=name, budget=budget, engine=engine, dtype=dtype, seed=seed)
            from h2o_chat.lab.racers import Wanted
            from h2o_chat.lab.speed import run_speed
            from h2o_chat.lab.speed_plot import plot_speed
            from h2o_chat.lab.speed_table import show_speed

            wanted = Wanted(
                settings,
                policies=policy or ["h2o"],
                quantize=quantize or ["auto"],
                seen=seen or [640],
                threads=threads or [],
                sampled=sampled,
                prompt=prompt,
                turns=turns,
                busy=busy,
                peers=others,
                peers_folder=peers_folder,
                peer_formats=peer_format or ["q4_0"],
                peer_seen=peer_seen or [],
                seed=seed,
            )
            report = run_speed(wanted)
            if plot is not None:
                plot_speed(report, plot)
            return tell(report, as_json, show_speed)

    end(work)


@bench.command()
def rows(
    model: Model = None,
    shape: Annotated[
        str | None, typer.Option(help="Instead of a model: random weights of this shape, made for the run.")
    ] = None,
    rows: Annotated[
        list[int] | None,
        typer.Option(help="Conversations at once; repeatable: 1, 4, 16 and 64 if not given.", min=1),
    ] = None,
    budget: OneBudget = 512,
    engine: Annotated[str, typer.Option(help="native, transformers or auto.")] = "auto",
    quantize: Annotated[str, typer.Option(help="none, int8, int4, nf4 or auto.")] = "auto",
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
            from h2o_chat.lab.rows_bench import run_rows, show_rows

            def show(found: list[Any]) -> None:
                show_rows(found)
                typer.echo(verdicts.rows(found, threads is not None))

            return tell(run_rows(settings, rows or [1, 4, 16, 64], turns, seed), as_json, show)

    end(work)


def _peers(names: Sequence[str], folder: Path | None, formats: Sequence[str]) -> list[str]:
    """The programs that are asked for, by name.

    Raises:
        UsageError: a program or format that is not known, no folder, or none with an environment.
    """
    from h2o_chat.lab.peer import ALL, FORMATS, PROGRAMS, check_folder

    for flag, values, known in (
        ("--peers", names, (*PROGRAMS, ALL)),
        ("--peer-format", formats, FORMATS),
    ):
        wrong = [value for value in values if value not in known]
        if wrong:
            raise UsageError(f"{flag} {wrong[0]!r} is not known.", f"One of: {', '.join(known)}.")
    asked = list(PROGRAMS) if ALL in names else list(dict.fromkeys(names))
    if any(PROGRAMS[name].environment for name in asked):
        check_folder(folder)
    return asked


def _showing(verdict: Callable[[Any], str]) -> Callable[[Sequence[Any]], None]:
    """What shows results and ends with what they mean."""

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
