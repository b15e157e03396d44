"""`h2o-chat eval qa` and `h2o-chat eval stuck`: questions on long texts, and whether a conversation lives."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import ExitCode
from h2o_chat.cli.lab_options import (
    Budgets,
    Dtype,
    Half,
    Json,
    Model,
    Policies,
    Quantize,
    Results,
    Threads,
    checked,
    end,
)
from h2o_chat.cli.prompts import read_script

Seed = Annotated[int, typer.Option(help="Of the bootstrap.")]


def qa(
    items: Annotated[Path, typer.Option(help="One JSON object a line: context, question, answer.")],
    model: Model = None,
    policies: Policies = None,
    budgets: Budgets = None,
    prompt_tokens: Annotated[
        int, typer.Option(help="Of a message at most; its beginning is cut off.", min=16)
    ] = 1910,
    tokens: Annotated[int, typer.Option(help="Of an answer at most.", min=1)] = 128,
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
        from h2o_chat.lab.eval.evals import run_qa

        wanted, slots = policies or ["h2o"], budgets or [256]
        return run_qa(settings, items, wanted, slots, prompt_tokens, tokens, half, as_json, results)

    end(work)


def stuck(
    turns: Annotated[Path, typer.Option(help="Messages, with lines of --- between them.")],
    model: Model = None,
    policies: Policies = None,
    budgets: Budgets = None,
    tokens: Annotated[int, typer.Option(help="Of an answer at most.", min=1)] = 40,
    temperature: Annotated[float, typer.Option(help="0: greedy.", min=0)] = 0.0,
    top_p: Annotated[float, typer.Option(min=0, max=1)] = 0.9,
    min_p: Annotated[float, typer.Option(min=0, max=1)] = 0.05,
    seeds: Annotated[
        list[int] | None, typer.Option("--seed", help="Of the sampling; repeatable.", show_default="0")
    ] = None,
    cured: Annotated[
        bool, typer.Option("--cured/--as-before", help="Whether loops are broken, as in a chat.")
    ] = True,
    recall: Annotated[bool, typer.Option(help="Whether what is gone is told again.")] = True,
    quantize: Quantize = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Whether a conversation still answers at its end, or says one sentence to whatever is said."""

    def work() -> ExitCode:
        settings = checked(model=model, dtype=dtype, threads=threads, quantize=quantize)
        messages = read_script(turns)
        from h2o_chat.lab.eval.evals import run_stuck

        wanted, slots = policies or ["h2o"], budgets or [512]
        sampling = Sampling(temperature, max_tokens=tokens)
        if temperature:
            sampling = replace(sampling, top_p=top_p, min_p=min_p)
        return run_stuck(settings, messages, wanted, slots, sampling, seeds or [0], cured, recall, as_json)

    end(work)
