"""`h2o-chat eval agreement|observe|generate|instructions|lm-eval`: claims and tasks, on your model.

As in `lab_commands.py`, the lab imports torch, so it is imported inside the commands.
"""

from pathlib import Path
from typing import Annotated

import typer

from h2o_chat.config import Settings
from h2o_chat.errors import ExitCode, UsageError
from h2o_chat.lab_commands import Dtype, Json, Model, Plot, Results, Threads, _check, _end, evaluate

Policies = Annotated[
    list[str] | None, typer.Option("--policy", help="E.g. h2o, or h2o:sinks=0,recent=8; repeatable.")
]
Budgets = Annotated[list[int] | None, typer.Option("--budget", "-b", help="Slots; repeatable.")]
Chunk = Annotated[int | None, typer.Option(help="Prompt tokens read before slots are given up.", min=1)]
Seed = Annotated[int, typer.Option(help="Of the bootstrap and of all that is drawn.")]

COMPARED = ["h2o", "h2o-paper", "window", "streaming"]


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
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Does it still say what the full cache says? KL per step, equal tokens, first other token."""

    def work() -> ExitCode:
        settings = Settings(model=model, dtype=dtype, threads=threads, seed=seed)  # type: ignore[arg-type]
        _check(settings)
        from h2o_chat.lab.agreement import run_agreement

        wanted, slots = policies or COMPARED, budgets or [32, 64, 128]
        return run_agreement(settings, texts, wanted, slots, prompt, tokens, prompts, as_json, plot)

    _end(work)


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
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Summaries and answers to questions, by ROUGE and exact match, against a cache that keeps everything."""

    def work() -> ExitCode:
        settings = Settings(model=model, dtype=dtype, threads=threads, seed=seed, chunk=chunk)  # type: ignore[arg-type]
        _check(settings)
        from h2o_chat.lab.generate import run_generate

        stops = tuple(stop or ())
        wanted, slots = policies or COMPARED, budgets or [64, 128]
        return run_generate(settings, file, wanted, slots, tokens, stops, as_json, plot)

    _end(work)


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
        settings = Settings(model=model, dtype=dtype, threads=threads, seed=seed)  # type: ignore[arg-type]
        _check(settings)
        from h2o_chat.lab.instructions import RULES, run_instructions

        asked = rules or ["end"]
        for rule in asked:
            if rule not in RULES:
                raise UsageError(f"There is no rule {rule!r}.", f"One of: {', '.join(RULES)}.")
        wanted, slots = policies or COMPARED, budgets or [128, 512]
        return run_instructions(settings, asked, conversations, imitate, wanted, slots, as_json, results)

    _end(work)


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
        settings = Settings(model=model, dtype=dtype, threads=threads, seed=seed, chunk=chunk)  # type: ignore[arg-type]
        _check(settings)
        from h2o_chat.lab.harness import run_harness

        wanted, slots = policies or COMPARED, budgets or [16, 32]
        return run_harness(settings, tasks, include_path, data, wanted, slots, limit, shots, as_json)

    _end(work)


@evaluate.command()
def observe(
    texts: Annotated[Path, typer.Option(help="A text file, or a .json list of strings.")],
    switch_to: Annotated[
        Path | None, typer.Option(help="What the topic changes to.", show_default="other parts of the texts")
    ] = None,
    model: Model = None,
    policies: Policies = None,
    budgets: Budgets = None,
    length: Annotated[int, typer.Option(help="Tokens per document.", min=64)] = 512,
    documents: Annotated[int, typer.Option(help="Documents at most.", min=1)] = 16,
    parts: Annotated[
        list[str] | None,
        typer.Option(
            "--part", help="attention, removal, topic or diversity; repeatable.", show_default="all"
        ),
    ] = None,
    dtype: Dtype = "auto",
    threads: Threads = None,
    seed: Seed = 0,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """What the H2O paper says of attention, heavy hitters and forgetting, on your model and text."""

    def work() -> ExitCode:
        settings = Settings(model=model, dtype=dtype, threads=threads, seed=seed)  # type: ignore[arg-type]
        _check(settings)
        from h2o_chat.lab.observe import PARTS, run_observe

        wanted, slots, asked = policies or COMPARED, budgets or [64], parts or list(PARTS)
        return run_observe(settings, texts, switch_to, wanted, slots, length, documents, asked, as_json, plot)

    _end(work)
