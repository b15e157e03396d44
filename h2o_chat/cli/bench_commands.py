"""`h2o-chat lab bench ...`: how the program behaves, on the command line.

As in `eval_commands.py`, the lab imports torch, so it is imported inside the commands.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2o_chat.base.errors import ExitCode
from h2o_chat.cli import lab_options as lab
from h2o_chat.cli.commands import ends
from h2o_chat.cli.typer_messages import PlainTyper
from h2o_chat.lab.shared.report_output import print_tables, tell

if TYPE_CHECKING:
    from h2o_chat.lab.bench.bounded import Bounded
    from h2o_chat.lab.bench.rows_bench import RowsSpeed

bench = PlainTyper(no_args_is_help=True)

MEMORY_GROWTH = 0.05
"""Share by which a process may differ in size: its allocator keeps what was freed."""
TIME_GROWTH = 0.15
"""Share by which medians of a shared machine differ without any growth."""


@bench.callback()
def _bench() -> None:
    """How the program behaves on this machine."""


@bench.command()
@ends
def bounded(
    model: lab.Model = None,
    budget: lab.OneBudget = 64,
    tokens: Annotated[int, typer.Option(help="Length of the conversation.", min=3000)] = 20_000,
    dtype: lab.Dtype = "auto",
    kv_dtype: lab.OneKvDtype = "auto",
    threads: lab.Threads = None,
    seed: Annotated[int, typer.Option(help="Of the sampling.")] = 0,
    as_json: lab.Json = False,
) -> ExitCode:
    """Does anything grow? Slots, memory, time per token and position index of one long conversation."""
    settings = lab.checked(
        model=model, budget=budget, dtype=dtype, kv_dtype=kv_dtype, threads=threads, seed=seed
    )
    from h2o_chat.lab.bench.bounded import run_bounded

    return tell(run_bounded(settings, tokens), as_json, _showing(_bounded_verdict))


@bench.command()
@ends
def speed(
    model: lab.Model = None,
    shape: lab.Shape = None,
    policy: lab.Policies = None,
    budget: lab.OneBudget = 512,
    engine: lab.Engine = "auto",
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
    dtype: lab.Dtype = "auto",
    seed: Annotated[int, typer.Option(help="Of the tokens.")] = 0,
    as_json: lab.Json = False,
) -> ExitCode:
    """A token of this program beside one of stock transformers, in turns."""
    from h2o_chat.native.spin_wait import let_torch_sleep

    if quantize and set(quantize) <= {"int4", "int8"}:  # stock, which does not sleep, takes no part
        let_torch_sleep(lab.checked(engine=engine))
    with lab.measured(shape, model, seed, budget=budget, engine=engine, dtype=dtype) as settings:
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


@bench.command()
@ends
def rows(
    model: lab.Model = None,
    shape: lab.Shape = None,
    rows: Annotated[
        list[int] | None,
        typer.Option(help="Conversations at once; repeatable: 1, 4, 16 and 64 if not given.", min=1),
    ] = None,
    budget: lab.OneBudget = 512,
    engine: lab.Engine = "auto",
    quantize: lab.Quantize = "auto",
    kv_dtype: lab.OneKvDtype = "auto",
    threads: lab.Threads = None,
    turns: Annotated[int, typer.Option(help="Of 32 tokens a row, by each number in turn.", min=1)] = 6,
    seed: Annotated[int, typer.Option(help="Of the tokens.")] = 0,
    as_json: lab.Json = False,
) -> ExitCode:
    """Tokens per second of many conversations in one process (`run --batch`), in turns."""
    how = {"engine": engine, "quantize": quantize, "kv_dtype": kv_dtype, "threads": threads}
    with lab.measured(shape, model, seed, budget=budget, **how) as settings:
        from h2o_chat.lab.bench.rows_bench import run_rows, show_rows

        def show(found: list[Any]) -> None:
            show_rows(found)
            typer.echo(_rows_verdict(found, threads is not None))

        return tell(run_rows(settings, rows or [1, 4, 16, 64], turns, seed), as_json, show)


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


# The last line of each: what the figures above it mean, in one sentence


def _bounded_verdict(found: "Sequence[Bounded]") -> str:
    (one,) = found
    slots = f"{one.most_kept_slots:,} of {one.budget:,} slots at most"
    index = f"positions up to {one.largest_index:,} of {one.window_tokens:,}"
    memory = f"memory {one.rss_growth_share:+.1%} since token 1,000"
    time = f"a token takes {one.old_over_fresh:.2f} times as long as in a new conversation"
    grown = [
        what
        for what, grows in (
            (slots, one.most_kept_slots > one.budget),
            (index, one.largest_index >= one.window_tokens),
            (memory, one.rss_growth_share > MEMORY_GROWTH),
            (time, one.old_over_fresh > 1 + TIME_GROWTH),
        )
        if grows
    ]
    if grown:
        return f"Verdict: something grows with {one.tokens:,} tokens: {'; '.join(grown)}."
    return f"Verdict: nothing grows with {one.tokens:,} tokens: {slots}, {index}, {memory}, {time}."


def _rows_verdict(found: "Sequence[RowsSpeed]", threads_asked: bool) -> str:
    first, best = found[0], max(found, key=lambda one: one.tok_s)
    threads = f"{first.threads} thread{'s' if first.threads > 1 else ''}"
    if not threads_asked:
        threads += ", as many as serve and run --batch take here (--threads: others)"
    told = f"With {threads}.\nVerdict: {first.rows:,} at once: {first.tok_s:,.0f} tok/s"
    if best is not first:
        told += f"; {best.rows:,}: {best.tok_s:,.0f}, {best.times_one:.2f} times as many"
    disturbed = sum(one.disturbed for one in found)
    return told + (
        f"; something else ran in {disturbed} samples: measure again when it is idle." if disturbed else "."
    )
