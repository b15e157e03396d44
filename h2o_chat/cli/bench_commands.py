"""`h2o-chat lab bench ...`: how the program behaves, on the command line.

As in `eval_commands.py`, the lab imports torch, so it is imported inside the commands.
"""

from typing import Annotated, Any

import typer

from h2o_chat.base.errors import ExitCode
from h2o_chat.cli import lab_options as lab
from h2o_chat.cli.commands import ends
from h2o_chat.cli.typer_messages import PlainTyper
from h2o_chat.lab.shared.report_output import print_table, tell

bench = PlainTyper(no_args_is_help=True)


@bench.callback()
def _bench() -> None:
    """How the program behaves on this machine."""


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
def gpu(
    model: lab.Model = None,
    shape: lab.Shape = None,
    budget: lab.OneBudget = 512,
    quantize: Annotated[list[str] | None, typer.Option(help="none or int4; repeatable.")] = None,
    seen: Annotated[
        list[int] | None,
        typer.Option(help="Tokens seen: 512, 4096, 32000, 100000 if not given; repeatable.", min=1),
    ] = None,
    rows: Annotated[
        list[int] | None, typer.Option(help="Conversations at once: 1, 8, 32 if not given.", min=1)
    ] = None,
    prompt: Annotated[int, typer.Option(help="Tokens of the prompt that is timed.", min=2)] = 8192,
    compiled: Annotated[bool, typer.Option("--compiled", help="Stock compiled, too: minutes.")] = False,
    as_json: lab.Json = False,
) -> ExitCode:
    """On a GPU: a token at several lengths, beside a copy's bandwidth and stock transformers; many rows.

    Stock's full cache is timed where the model's window holds what was seen.
    """
    from h2o_chat.models.choices import choose_device

    choose_device("cuda")  # before weights are made
    how = quantize or ["none"]
    with lab.measured(shape, model, 0, budget=budget, device="cuda", quantize=how[0]) as settings:
        from h2o_chat.graph.loading import open_model
        from h2o_chat.lab.bench.speed import Wanted, run_speed
        from h2o_chat.lab.bench.speed_table import show_speed
        from h2o_chat.lab.bench.timed_programs import rows_speed

        wanted = Wanted(
            settings,
            quantize=how,
            seen=seen or [512, 4096, 32_000, 100_000],
            stock_in_window=True,
            compiled=compiled,
            prompt=prompt,
            turns=6,
        )
        report, loaded = run_speed(wanted), open_model(settings, lambda *_: None)
        steps = [rows_speed(loaded, settings, number) for number in rows or [1, 8, 32]]

        def show(found: dict[str, Any]) -> None:
            show_speed(report)
            print_table([*steps[0]], [[f"{one:,.4g}" for one in row.values()] for row in steps])

        return tell({"speed": report, "rows": steps}, as_json, show)
