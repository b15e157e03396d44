"""Options that the commands of `h2o-chat lab eval` and `h2o-chat lab bench` share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import UsageError
from h2o_chat.cli.typer_messages import MODEL

Model = Annotated[
    str | None, typer.Option("--model", "-m", metavar="NAME", help="Model folder or name; else pocket.")
]
Policies = Annotated[
    list[str] | None, typer.Option("--policy", help="E.g. h2o, or h2o:sinks=0,recent=8; repeatable.")
]
Budgets = Annotated[list[int] | None, typer.Option("--budget", "-b", help="Slots; repeatable.")]
OneBudget = Annotated[int, typer.Option("--budget", "-b", help="Slots per layer and KV head.")]
Dtype = Annotated[str, typer.Option(help="Precision; auto: float32 on a CPU.", rich_help_panel=MODEL)]
Quantize = Annotated[str, typer.Option(help="Weights: none, int8, int4, nf4 or auto.", rich_help_panel=MODEL)]
EqualBytes = Annotated[
    bool, typer.Option("--equal-bytes", help="Smaller precisions get as many slots as fit the bytes.")
]
Engine = Annotated[str, typer.Option(help="native, transformers or auto.", rich_help_panel=MODEL)]
Shape = Annotated[
    str | None, typer.Option(help="Instead of a model: random weights of this shape, made for the run.")
]
Threads = Annotated[
    int | None, typer.Option(help="CPU threads.", show_default="all cores but one", rich_help_panel=MODEL)
]
Results = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Kept as they come, by lines; run again to go on.")
]
Half = Annotated[str | None, typer.Option(help="even or odd: every second document alone.")]
Paired = Annotated[bool, typer.Option("--paired", help="Each policy also against the first, pair by pair.")]
Seed = Annotated[int, typer.Option(help="Seed of the bootstrap and of all that is drawn.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


COMPARED = ["h2o", "h2o-paper", "window", "streaming"]
"""Policies that are compared where none is named."""


def checked(**given: Any) -> Settings:
    """Settings, of pocket where no model is named, so that a command means the same on every machine.

    It says what is wrong with the model's name before two seconds of imports.

    Raises:
        UsageError: a setting that cannot be, or no such model.
    """
    from h2o_chat.models.resolve import POCKET, find

    settings = Settings(**given | {"model": given.get("model") or POCKET})
    find(settings.model)
    return settings


@contextmanager
def measured(shape: str | None, model: str | None, seed: int, **given: Any) -> Iterator[Settings]:
    """The settings for a model, or for random weights of a shape, which are gone afterwards.

    Raises:
        UsageError: a setting that cannot be, no such model, no such shape.
    """
    if shape is None:
        yield checked(model=model, seed=seed, **given)
        return
    from h2o_chat.lab.shared.shapes import SHAPES, make

    if shape not in SHAPES:
        raise UsageError(f"Shape {shape!r} is not known.", f"One of: {', '.join(SHAPES)}.")
    with TemporaryDirectory() as folder:
        make(shape, Path(folder), seed)
        yield checked(model=folder, seed=seed, **given)
