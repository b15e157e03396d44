"""`h2o-chat lab eval ...`: what forgetting costs on texts, prompts and tasks.

Each prints a table, or with --json one object, on stdout; progress goes to stderr. The lab itself imports
torch, so it is imported inside the commands.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from h2o_chat.base.errors import ExitCode
from h2o_chat.cli.eval_talks import qa, recall, stuck
from h2o_chat.cli.lab_options import (
    COMPARED,
    Budgets,
    Dtype,
    EqualBytes,
    Half,
    Json,
    KvDtypes,
    Model,
    Paired,
    Policies,
    Quantize,
    Results,
    Seed,
    Threads,
    checked,
    end,
)
from h2o_chat.cli.typer_messages import PlainTyper

evaluate = PlainTyper(no_args_is_help=True)


@evaluate.callback()
def _evaluate() -> None:
    """Measure what forgetting costs on your model."""


@evaluate.command()
def perplexity(
    texts: Annotated[Path, typer.Option(help="A text file, or a .json list of strings.")],
    model: Model = None,
    policies: Policies = None,
    budgets: Budgets = None,
    length: Annotated[int, typer.Option(help="Tokens per document.", min=2)] = 512,
    prompt: Annotated[
        int | None,
        typer.Option(
            help="First tokens of each document, read as a prompt.", show_default="0, or half", min=0
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
    quantize: Quantize = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    results: Results = None,
    kv_dtypes: KvDtypes = None,
    equal_bytes: EqualBytes = False,
    half: Half = None,
    paired: Paired = False,
    as_json: Json = False,
) -> None:
    """Perplexity of real text as a ratio to a cache that keeps everything, with intervals."""

    def work() -> ExitCode:
        settings = checked(model=model, quantize=quantize, dtype=dtype, threads=threads, seed=seed)
        from h2o_chat.lab.eval import perplexity as task
        from h2o_chat.lab.eval.run_eval import run_eval
        from h2o_chat.lab.shared import lab_texts
        from h2o_chat.lab.shared.measured_results import Results as Known
        from h2o_chat.lab.shared.policy_variant import crossed

        variants, found, known = (
            crossed(policies or COMPARED, kv_dtypes or ()),
            lab_texts.read_texts(texts),
            Known(results),
        )
        readings = [
            task.Reading(prefill, chunk)
            for prefill in prefills or ["chunked"]
            for chunk in ((None,) if prefill == "full" else chunks or (None,))
        ]
        read = prompt if prompt is not None else length // 2 if prefills or chunks else 0
        slots = budgets or [32, 64, 128]

        def measure(loaded: Any, tick: Any) -> Any:
            documents = lab_texts.documents(found, loaded.tokenizer, length)
            ids = lab_texts.half_of(documents, half)
            return task.measure(
                loaded, ids, variants, slots, seed, tick, read, readings, equal_bytes, known, paired
            )

        return run_eval(settings, "read", measure, as_json, task.show_table)

    end(work)


evaluate.command()(recall)


evaluate.command()(qa)
evaluate.command()(stuck)
