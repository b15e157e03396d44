"""`h2o-chat eval ...`: what the lab measures, on the command line.

Each prints a table, or with --json one object, on stdout; progress goes to stderr. The lab itself imports
torch, so it is imported inside the commands.
"""

from pathlib import Path
from typing import Annotated

import typer

from h2o_chat.base.errors import ExitCode, UsageError
from h2o_chat.cli.eval_talks import qa, stuck
from h2o_chat.cli.in_words import App
from h2o_chat.cli.lab_options import (
    Budgets,
    Chunk,
    Dtype,
    EqualBytes,
    Half,
    Json,
    KvDtypes,
    Model,
    Paired,
    Plot,
    Policies,
    Quantize,
    Results,
    Threads,
    checked,
    end,
)

evaluate = App(no_args_is_help=True)

Seed = Annotated[int, typer.Option(help="Of the bootstrap and of all that is drawn.")]

COMPARED = ["h2o", "h2o-paper", "window", "streaming"]


@evaluate.callback()
def _evaluate() -> None:
    """What forgetting costs on your model."""


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
            help="First tokens of each document, read as a prompt.",
            show_default="0, or half",
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
    quantize: Quantize = "auto",
    dtype: Dtype = "auto",
    threads: Threads = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap, and of what is drawn.")] = 0,
    results: Results = None,
    plot: Plot = None,
    kv_dtypes: KvDtypes = None,
    equal_bytes: EqualBytes = False,
    half: Half = None,
    paired: Paired = False,
    as_json: Json = False,
) -> None:
    """Perplexity of real text as a ratio to a cache that keeps everything, with intervals."""

    def work() -> ExitCode:
        settings = checked(model=model, quantize=quantize, dtype=dtype, threads=threads, seed=seed)
        wanted = policies or COMPARED
        from h2o_chat.lab.eval.evals import run_perplexity
        from h2o_chat.lab.eval.perplexity import Reading

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
            results,
            half,
            paired,
        )

    end(work)


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
    recall: Annotated[
        bool,
        typer.Option("--recall", help="With --generate: ask once more, with recall."),
    ] = False,
    pasted: Annotated[
        bool, typer.Option("--pasted", help="With --generate: what is told is one message, as a page.")
    ] = False,
    scripted: Annotated[
        bool,
        typer.Option(
            "--scripted",
            help="With --generate: answers are made up too.",
        ),
    ] = False,
    paired: Paired = False,
    model: Model = None,
    policies: Policies = None,
    budgets: Budgets = None,
    quantize: Quantize = "auto",
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
        settings = checked(model=model, dtype=dtype, threads=threads, seed=seed, quantize=quantize)
        wanted, kv = policies or COMPARED, kv_dtypes or ()
        if (questions is None) == (generate is None):
            raise UsageError(
                "What shall be asked?", "Give --questions FILE or --generate TOKENS, one of them."
            )
        if questions is not None and (paired or pasted):
            raise UsageError(f"{'--paired' if paired else '--pasted'} goes with --generate.")
        if generate is None and scripted:
            raise UsageError("--scripted goes with --generate.")
        if (pasted or paired or equal_bytes) and generate is not None and not scripted:
            raise UsageError("--pasted, --paired and --equal-bytes go with --scripted.")
        if generate is not None:
            from h2o_chat.lab.eval.evals import run_long_recall

            slots = budgets or [512]
            return run_long_recall(
                settings,
                generate,
                conversations,
                wanted,
                slots,
                as_json,
                results,
                kv,
                equal_bytes,
                plot,
                recall,
                paired,
                pasted,
                scripted,
            )
        from h2o_chat.lab.eval.evals import run_recall

        assert questions is not None
        slots = budgets or [64, 128, 256, 512]
        return run_recall(settings, questions, wanted, slots, as_json, results, kv, equal_bytes, plot)

    end(work)


@evaluate.command()
def agreement(
    texts: Annotated[Path, typer.Option(help="Of prompts: a text file, or a .json list of strings.")],
    model: Model = None,
    policies: Policies = None,
    budgets: Budgets = None,
    prompt: Annotated[int, typer.Option(help="Tokens of a prompt.", min=2)] = 256,
    tokens: Annotated[int, typer.Option(help="Of a continuation.", min=1)] = 64,
    prompts: Annotated[int, typer.Option(help="At most.", min=1)] = 16,
    dtype: Dtype = "auto",
    threads: Threads = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    results: Results = None,
    plot: Plot = None,
    half: Half = None,
    paired: Paired = False,
    as_json: Json = False,
) -> None:
    """Does it still say what the full cache says? KL per step, equal tokens, first other token."""

    def work() -> ExitCode:
        settings = checked(model=model, dtype=dtype, threads=threads, seed=seed)
        from h2o_chat.lab.eval.evals import run_agreement

        wanted, slots = policies or COMPARED, budgets or [32, 64, 128]
        return run_agreement(
            settings, texts, wanted, slots, prompt, tokens, prompts, as_json, plot, results, half, paired
        )

    end(work)


@evaluate.command()
def generate(
    file: Annotated[Path, typer.Argument(help="One JSON object a line: prompt, reference.")],
    model: Model = None,
    policies: Policies = None,
    budgets: Budgets = None,
    tokens: Annotated[int, typer.Option(help="Of an answer at most.", min=1)] = 64,
    stop: Annotated[list[str] | None, typer.Option(help="Text that ends an answer; repeatable.")] = None,
    chunk: Chunk = None,
    dtype: Dtype = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    results: Results = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Summaries and answers to questions, by ROUGE and exact match, against a cache that keeps everything."""

    def work() -> ExitCode:
        settings = checked(model=model, dtype=dtype, threads=threads, seed=seed, chunk=chunk)
        from h2o_chat.lab.eval.evals import run_generate

        stops = tuple(stop or ())
        wanted, slots = policies or COMPARED, budgets or [64, 128]
        return run_generate(settings, file, wanted, slots, tokens, stops, as_json, plot, results)

    end(work)


@evaluate.command()
def instructions(
    rules: Annotated[
        list[str] | None,
        typer.Option("--rule", help="end, begin or capitals; repeatable.", show_default="end"),
    ] = None,
    conversations: Annotated[int, typer.Option(help="Of each rule.", min=1)] = 10,
    imitate: Annotated[
        bool, typer.Option("--imitate/--no-imitate", help="Whether the answers in between keep the rule.")
    ] = True,
    model: Model = None,
    policies: Policies = None,
    budgets: Budgets = None,
    dtype: Dtype = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    results: Results = None,
    as_json: Json = False,
) -> None:
    """Whether a system prompt is still obeyed after 0, 10, 25 and 50 turns."""

    def work() -> ExitCode:
        settings = checked(model=model, dtype=dtype, threads=threads, seed=seed)
        from h2o_chat.lab.eval.instructions import RULES, run_instructions

        asked = rules or ["end"]
        for rule in asked:
            if rule not in RULES:
                raise UsageError(f"There is no rule {rule!r}.", f"One of: {', '.join(RULES)}.")
        wanted, slots = policies or COMPARED, budgets or [128, 512]
        return run_instructions(settings, asked, conversations, imitate, wanted, slots, as_json, results)

    end(work)


@evaluate.command("lm-eval")
def lm_eval(
    tasks: Annotated[list[str], typer.Option(help="A task of lm_eval, or of --include-path; repeatable.")],
    include_path: Annotated[Path | None, typer.Option(metavar="DIR", help="Task files of your own.")] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Handed to tasks that read files, as piqa_local does.")
    ] = None,
    model: Model = None,
    policies: Policies = None,
    budgets: Budgets = None,
    limit: Annotated[int | None, typer.Option(help="Documents of each task.", min=1)] = None,
    shots: Annotated[int | None, typer.Option(help="Examples before each question.", min=0)] = None,
    chunk: Chunk = 1,
    dtype: Dtype = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Tasks of EleutherAI's lm_eval through the bounded cache, token by token: no policy sees the future."""

    def work() -> ExitCode:
        settings = checked(model=model, dtype=dtype, threads=threads, seed=seed, chunk=chunk)
        from h2o_chat.lab.eval.lm_eval_harness import run_harness

        wanted, slots = policies or COMPARED, budgets or [16, 32]
        return run_harness(settings, tasks, include_path, data, wanted, slots, limit, shots, as_json)

    end(work)


@evaluate.command()
def observe(
    texts: Annotated[Path, typer.Option(help="A text file, or a .json list of strings.")],
    model: Model = None,
    length: Annotated[int, typer.Option(help="Tokens per document.", min=64)] = 512,
    documents: Annotated[int, typer.Option(help="Documents at most.", min=1)] = 16,
    parts: Annotated[
        list[str] | None,
        typer.Option("--part", help="attention or removal; repeatable.", show_default="all"),
    ] = None,
    dtype: Dtype = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """What the H2O paper says of attention, heavy hitters and forgetting, on your model and text."""

    def work() -> ExitCode:
        settings = checked(model=model, dtype=dtype, threads=threads, seed=seed)
        from h2o_chat.lab.eval.attention_figures import PARTS
        from h2o_chat.lab.eval.evals import run_observe

        return run_observe(settings, texts, length, documents, parts or list(PARTS), as_json, plot)

    end(work)


evaluate.command()(qa)
evaluate.command()(stuck)
