"""What the commands without a screen share."""

import sys
from collections.abc import Callable

import typer

from h2o_chat.base.errors import ExitCode, UsageError
from h2o_chat.cli.run import ending


def ends(work: Callable[[], None]) -> None:
    """Runs a command body; its errors are said as everywhere, and decide the exit code."""

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
