"""`h2o-chat bench ...`: how the program behaves, on the command line.

As in `eval_commands.py`, the lab imports torch, so it is imported inside the commands.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2o_chat.base.errors import ExitCode, UsageError
from h2o_chat.cli.lab_options import (
    Dtype,
    Json,
    Model,
    OneBudget,
    OneKvDtype,
    Policies,
    Threads,
    checked,
    end,
)
from h2o_chat.lab.output import print_tables, tell

if TYPE_CHECKING:
    from h2o_chat.lab.speed import Speed

bench = typer.Typer(no_args_is_help=True)


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

        return tell(run_bounded(settings, tokens), as_json, _show)

    end(work)


@bench.command()
def rounding(
    tokens: Annotated[int, typer.Option(help="Length of the conversation.", min=1)] = 1_000_000,
    window: Annotated[int, typer.Option(help="Tokens the model was trained for.", min=64)] = 2048,
    as_json: Json = False,
) -> None:
    """How far the oldest key has drifted after a conversation of this length, by precision (simulated)."""

    def work() -> ExitCode:
        from h2o_chat.lab.bounded import rounding_table

        return tell(rounding_table(tokens, window), as_json, _show)

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

        return tell(run_soak(settings, folder, tokens), as_json, _show)

    end(work)


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

        return tell(run_store(conversations, messages, seed), as_json, _show)

    end(work)


@bench.command()
def turns(
    turns: Annotated[int, typer.Option(help="Of one token each.", min=10)] = 100_000,
    as_json: Json = False,
) -> None:
    """Whether a turn costs the same late in a conversation as early: all of it but the model."""

    def work() -> ExitCode:
        from h2o_chat.lab.turns_bench import run_turns

        return tell(run_turns(turns), as_json, _show)

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

        return tell(run_ui(settings, turns, tokens, rounds, seed), as_json, _show)

    end(work)


@bench.command()
def speed(
    model: Model = None,
    shape: Annotated[
        str | None, typer.Option(help="Instead of a model: random weights of this shape, made for the run.")
    ] = None,
    policy: Policies = None,
    budget: OneBudget = 512,
    seen: Annotated[int, typer.Option(help="Tokens seen before the first that is timed.", min=1)] = 640,
    prompt: Annotated[int, typer.Option(help="Tokens of the prompt that is timed.", min=2)] = 640,
    turns: Annotated[int, typer.Option(help="Of 32 tokens, by each in turn.", min=1)] = 12,
    quantize: Annotated[str, typer.Option(help="none, int8, nf4 or auto.")] = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    seed: Annotated[int, typer.Option(help="Of the tokens.")] = 0,
    as_json: Json = False,
) -> None:
    """A token of this program against one of stock transformers with a full cache, on the same weights."""

    def work() -> ExitCode:
        with made(shape, seed) as folder:
            name = str(folder) if folder else model
            settings = checked(
                model=name, budget=budget, dtype=dtype, threads=threads, seed=seed, quantize=quantize
            )
            from h2o_chat.lab.speed import run_speed

            found = run_speed(settings, policy or ["h2o", "window"], seen, prompt, turns, seed)
        return tell(found, as_json, _show_speed)

    end(work)


@contextmanager
def made(shape: str | None, seed: int) -> Iterator[Path | None]:
    """A folder with random weights, gone afterwards; None where no shape was asked for.

    Raises:
        UsageError: no such shape.
    """
    if shape is None:
        yield None
        return
    from h2o_chat.lab.shapes import SHAPES, make

    if shape not in SHAPES:
        raise UsageError(f"Shape {shape!r} is not known.", f"One of: {', '.join(SHAPES)}.")
    with TemporaryDirectory() as folder:
        make(shape, Path(folder), seed)
        yield Path(folder)


def _show_speed(results: "Sequence[Speed]") -> None:
    """The figures, and what they say."""
    _show(results)
    stock, *ours = results
    for one in ours:
        sys.stdout.write(
            f"{one.contestant}: a token takes {one.token_ms:.1f} ms, {one.token_to_stock:.2f} times stock's"
            f" at {stock.seen_tokens:,} tokens seen; the first after {one.prompt_tokens:,} tokens"
            f" {one.first_ms / 1000:.2f} s, {one.first_to_stock:.2f} times stock's."
            f" The floor is {one.floor_ms:.1f} ms ({one.read_gb_s:.1f} GB/s):"
            f" {one.floor_ms / one.token_ms:.0%} of it is reached.\n"
        )
    disturbed = sum(one.disturbed_turns for one in results)
    if disturbed:
        total = sum(one.turns for one in results)
        sys.stdout.write(
            f"Something else ran in {disturbed} of {total} samples: measure again when it is idle.\n"
        )


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
