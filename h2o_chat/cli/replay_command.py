"""`h2o-chat replay`: a recorded conversation on the screen, or two side by side, without their models."""

import sys
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from h2o_chat.base import precedence
from h2o_chat.base.config import Sampling, Settings
from h2o_chat.base.errors import ExitCode, UsageError
from h2o_chat.cli import config_command
from h2o_chat.cli.commands import ends
from h2o_chat.events.recording import read
from h2o_chat.models.resolve import BUNDLED

DEMO = tuple(folder.parent / "demo.jsonl" for folder in BUNDLED)
"""Places of the recording in a wheel and in a checkout; `tools/make/make_demo.py` makes it."""
SLOWEST, FASTEST = 0.01, 1000.0
Speed = Annotated[
    str, typer.Option(metavar="TIMES|max", help="So many times as fast; max waits for nothing.")
]


@ends
def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Made by --record, or by run --json.")],
    other: Annotated[
        Path | None, typer.Argument(metavar="OTHER", help="Print what both held at the end, side by side.")
    ] = None,
    speed: Speed = "1.0",
) -> ExitCode:
    """Show a recorded conversation again, as it was; no model is loaded."""
    pace = _times(speed)
    if other is not None:
        if pace != 1:
            raise UsageError("Two recordings are printed, not played.", "Leave out --speed.")
        from h2o_chat.cli import replay_beside

        replay_beside.show(
            (replay_beside.folded(read(file)), replay_beside.folded(read(other))), (file.name, other.name)
        )
        return ExitCode.OK
    events = read(file)
    first = next(events)  # an error about the file belongs into the shell
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):  # it is drawn on stderr
        raise UsageError(
            "A replay needs a terminal, and this is none.",
            f"Without one, read {file} itself: one event a line, as JSON.",
        )
    from h2o_chat.tui import leaving
    from h2o_chat.tui.chat_app import ChatApp
    from h2o_chat.tui.leaving import leave_with_the_terminal
    from h2o_chat.tui.pane.jobs import Jobs
    from h2o_chat.tui.replay import Pace, Player, ReplayPane

    player = Player(chain([first], events), Pace(pace))
    pane = ReplayPane(Jobs(), player, file.name)
    look, keep_look = precedence.look(), config_command.change
    screen = ChatApp(
        player.open, Settings(model=file.name), Sampling(), pane=pane, look=look, keep_look=keep_look
    )
    leave_with_the_terminal()
    leaving.run(screen)
    return ExitCode.BUG if screen.return_code else ExitCode(screen.exit_code)


def demo(speed: Speed = "1.0") -> None:
    """Show a recorded conversation that comes with the program, at once; no model is loaded."""
    replay(next((file for file in DEMO if file.is_file()), DEMO[0]), speed=speed)


def _times(speed: str) -> float:
    if speed == "max":
        return float("inf")
    try:
        times = float(speed)
    except ValueError:
        times = float("nan")
    if not SLOWEST <= times <= FASTEST:
        raise UsageError(
            f"--speed is {speed!a}.", f"It must be in [{SLOWEST}, {FASTEST:.0f}], or max: no waiting at all."
        )
    return times
