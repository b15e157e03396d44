"""The palette: the same commands as behind a slash."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from textual.app import App, SystemCommand

from h2o_chat.tui.panel.strip import RememberStrip
from h2o_chat.tui.talk import slash
from h2o_chat.tui.talk.talk import TalkPane


def commands(pane: TalkPane) -> Iterator[SystemCommand]:
    """All of them."""
    for command in slash.COMMANDS:
        what = f"{command.arguments} · {command.help}" if command.arguments else command.help
        # The palette takes it for markup, in which [NUMBER] would vanish.
        yield SystemCommand(command.name, what.replace("[", "\\["), partial(choose, pane, command))


def without_a_prompt(app: App[Any]) -> Iterator[SystemCommand]:
    """What there is to do with a recording."""
    yield SystemCommand("help", "the keys", app.action_help)  # type: ignore[attr-defined]
    yield SystemCommand("axis", "another axis for the strip", app.query_one(RememberStrip).next_axis)
    yield SystemCommand("theme", "other colours", app.action_change_theme)
    yield SystemCommand("quit", "leave", app.exit)


def choose(pane: TalkPane, command: slash.Command) -> None:
    """Done at once, or begun in the prompt where something must be added."""
    required = command.arguments and not command.arguments.startswith("[")
    if required:
        pane.prompt.put_aside()
        pane.prompt.put(f"/{command.name} ")
        pane.prompt.focus()
    else:
        pane.send(f"/{command.name}")
