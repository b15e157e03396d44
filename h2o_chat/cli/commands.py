"""Helpers of the commands without a screen."""

import os
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec

import typer
from rich.cells import cell_len, set_cell_size

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ExitCode, ModelError, UsageError, name_of
from h2o_chat.chat.conversation.opening import choose_unnamed
from h2o_chat.cli.run import ending, say
from h2o_chat.models.here import spelled_out
from h2o_chat.models.hub import Agree
from h2o_chat.models.obtain import ASK_FROM_BYTES, size, to_be_fetched

Given = ParamSpec("Given")
FetchYes = Annotated[
    bool, typer.Option("--yes", help=f"Do not ask before {size(ASK_FROM_BYTES)} or more are fetched.")
]


def ends(command: Callable[Given, ExitCode | None]) -> Callable[Given, NoReturn]:
    """Decorates a command: its exit code ends the program, and errors are shown as everywhere."""

    @wraps(command)
    def ended(*args: Given.args, **values: Given.kwargs) -> NoReturn:
        raise typer.Exit(ending(lambda: command(*args, **values) or ExitCode.OK))

    return ended


def print_rows(rows: Sequence[Sequence[str]], right: Collection[int] = (), gives: int | None = None) -> None:
    """Prints rows of cells, one below the other; on a terminal each is cut at its edge.

    Args:
        right: columns of numbers.
        gives: the column that is shortened first, to no less than 12 cells.
    """
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if columns and gives is not None:
        missing = sum(widths) + 2 * len(widths) - 2 - columns
        widths[gives] = min(widths[gives], max(12, widths[gives] - missing))
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    for row in rows:
        padded = [
            set_cell_size(cell if cell_len(cell) <= width else set_cell_size(cell, width - 1) + "…", width)
            for cell, width in zip(row, widths, strict=True)
        ]
        for number in right:
            padded[number] = row[number].rjust(widths[number])
        line = "  ".join(padded).rstrip()
        typer.echo(set_cell_size(line, columns).rstrip() if columns and cell_len(line) > columns else line)


def confirmed(question: str) -> bool:
    """Asks on the terminal.

    Raises:
        UsageError: there is none.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{question.splitlines()[0]} Nobody is there to confirm it.", "Say --yes.")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def asking(yes: bool) -> Agree:
    """Returns what asks before many bytes are fetched.

    Raises, where it is asked:
        UsageError: there is no terminal to ask on.
        ModelError: somebody said no.
    """

    def agree(repository: str, missing_bytes: int, free_bytes: int) -> None:
        if yes or missing_bytes < ASK_FROM_BYTES:
            return
        if not confirmed(f"{to_be_fetched(repository, missing_bytes, free_bytes)}\nFetch it?"):
            raise ModelError(f"{repository} was not fetched.", "Without -m another one answers.")

    return agree


def with_model(settings: Settings, asked: Collection[str], folder: Path) -> Settings:
    """The settings with a model; where none was asked for, stderr says which one it is.

    Args:
        asked: settings on the command line, or of the stored conversation.
        folder: the data folder; its newest conversation has the model used last.
    """
    what = f"{settings.model}, as configured"
    if settings.model is None:
        settings, what = choose_unnamed(settings, folder)
    else:
        settings = replace(settings, model=spelled_out(settings.model, folder))
    if "model" not in asked:
        say(f"h2o-chat: no model was named: {name_of(what)}")
    return settings


def with_ray(module: str) -> Any:
    """A module of `h2o_chat.cluster`; raises UsageError where Ray is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else it tells its makers about each cluster
    try:
        return import_module(f"h2o_chat.cluster.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("h2o_chat"):
            raise
        hint = "pip install 'h2o-chat[cluster]'"
        raise UsageError(f"A cluster needs Ray, and {error.name} is not installed.", hint) from error
