"""Helpers of the commands without a screen."""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from h2o_chat.base.errors import ExitCode, ModelError, UsageError
from h2o_chat.cli.run import ending
from h2o_chat.models.hub import Agree
from h2o_chat.models.obtain import ASK_FROM_BYTES, size, to_be_fetched

FetchYes = Annotated[
    bool, typer.Option("--yes", help=f"Do not ask before {size(ASK_FROM_BYTES)} or more are fetched.")
]


def ends(work: Callable[[], None]) -> None:
    """Runs a command body; its errors are shown as everywhere, and decide the exit code."""

    def done() -> ExitCode:
        work()
        return ExitCode.OK

    raise typer.Exit(ending(done))


def confirmed(question: str) -> bool:
    """Asks on the terminal.

    Raises:
        UsageError: there is none.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("Nobody is there to confirm it.", "Say --yes.")
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
        what = to_be_fetched(repository, missing_bytes, free_bytes)
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError(f"{what} Nobody is there to confirm it.", "Say --yes.")
        if not confirmed(f"{what}\nFetch it?"):
            raise ModelError(f"{repository} was not fetched.", "Without -m another one answers.")

    return agree
