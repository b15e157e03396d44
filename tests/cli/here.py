"""A run of the program without a process of its own: no seconds spent on importing torch once more."""

from program import Ended
from typer.testing import CliRunner

from h2o_chat.base.errors import ExitCode
from h2o_chat.cli.cli import app


def h2o_here(*arguments: object, piped: str | bytes = "", ends: int | None = ExitCode.OK) -> Ended:
    """Runs `h2o-chat ARGUMENTS` in this process, for tests without a signal, a limit or a terminal.

    It ends with the code `ends`, or the test fails; None: any code.
    """
    raw = piped.encode() if isinstance(piped, str) else piped
    done = CliRunner().invoke(app, list(map(str, arguments)), input=raw)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert ends in (None, done.exit_code), done.output
    return Ended(done.exit_code, done.stdout, done.stderr)
