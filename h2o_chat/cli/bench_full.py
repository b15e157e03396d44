"""`h2o-chat bench full`: this program beside full caches that get the same memory."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from h2o_chat.base.errors import ExitCode
from h2o_chat.cli import verdicts
from h2o_chat.cli.lab_options import Json, Model, OneBudget, OneKvDtype, Threads, end, measured
from h2o_chat.lab.output import tell

if TYPE_CHECKING:
    from h2o_chat.lab.full_bench import Report


def full(
    model: Model = None,
    shape: Annotated[
        str | None, typer.Option(help="Instead of a model: random weights of this shape, made for the run.")
    ] = None,
    kv_gib: Annotated[float, typer.Option(help="GiB of keys and values, of all rows.", min=0.0)] = 2.0,
    tokens_in: Annotated[int, typer.Option(help="Of each prompt.", min=1)] = 2048,
    tokens_out: Annotated[int, typer.Option(help="Of each answer.", min=8)] = 2048,
    budget: OneBudget = 512,
    engine: Annotated[str, typer.Option(help="native, transformers or auto.")] = "auto",
    quantize: Annotated[str, typer.Option(help="none, int8, int4, nf4 or auto.")] = "auto",
    kv_dtype: OneKvDtype = "auto",
    threads: Threads = None,
    turns: Annotated[int, typer.Option(help="Of 32 tokens a row, of this program.", min=1)] = 2,
    peers_folder: Annotated[
        Path | None, typer.Option(help="Made by tools/make_peers.py: with llama.cpp.", metavar="DIR")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the tokens.")] = 0,
    as_json: Json = False,
) -> None:
    """Tokens per second at equal K/V memory: this program, stock transformers' full cache, llama.cpp's slots.

    Steady rates in the middle of each quarter of the answer, added up: a whole run takes hours.
    """

    def work() -> ExitCode:
        how = {"engine": engine, "quantize": quantize, "kv_dtype": kv_dtype, "threads": threads}
        with measured(shape, model, seed, budget=budget, **how) as settings:
            from h2o_chat.lab.full_bench import Wanted, run_full, show_full

            def show(report: "Report") -> None:
                show_full(report)
                typer.echo(verdicts.full(report))

            kv_bytes = int(kv_gib * (1 << 30))
            wanted = Wanted(settings, kv_bytes, tokens_in, tokens_out, turns, peers_folder, seed)
            return tell(run_full(wanted), as_json, show)

    end(work)
