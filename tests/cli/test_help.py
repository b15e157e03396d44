"""`--help` of each command stands on a screen of 24 lines; what commands share stands under `help TOPIC`."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from h2o_chat.cli.cli import app
from h2o_chat.cli.flags import FLAGS


def commands(group: Any, *names: str) -> Iterator[list[str]]:
    """Every command that the help shows, by the words that are typed for it."""
    yield list(names)
    for name, one in getattr(group, "commands", {}).items():
        if not one.hidden:
            yield from commands(one, *names, name)


EVERY = list(commands(typer.main.get_command(app)))


def said(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("command", EVERY, ids=" ".join)
def test_help_stands_on_one_screen(command: list[str]) -> None:
    lines = said(*command, "--help").splitlines()
    assert len(lines) < 24, "a line is left for the prompt"
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"Usage: {' '.join(['h2o-chat', *command])} ")


def test_every_shared_option_stands_under_its_topic() -> None:
    topics = {topic: said("help", topic) for topic in ("model", "memory", "answer")}
    for name, option in FLAGS.items():
        flag = f"--{name.replace('_', '-')}"
        assert [topic for topic, text in topics.items() if f"{flag} " in text] == [option.rich_help_panel]
    assert all(topic in said("run", "--help").splitlines()[-1] for topic in topics)


def test_help_of_a_command_is_its_help() -> None:
    assert said("help", "serve").splitlines()[1:] == said("serve", "--help").splitlines()[1:]
    wrong = CliRunner().invoke(app, ["help", "nothing"])
    assert wrong.exit_code == 2
    assert "no help on 'nothing'" in wrong.output


@pytest.mark.parametrize("name", ["eval", "bench"])
def test_old_names_work_silently_and_are_not_shown(name: str) -> None:
    assert f" {name} " not in said("--help")
    old, new = said(name, "--help").splitlines(), said("lab", name, "--help").splitlines()
    assert old[1:] == new[1:]
