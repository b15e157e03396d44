"""How to run this program: its name in commands that a message suggests, and another Python process of it."""

import os
import shlex
import shutil
import sys
from pathlib import Path

import h2o_chat
from h2o_chat.base.config import data_folder

NAME = "h2o-chat"


def program_name() -> str:
    """Returns `h2o-chat` if the shell finds it so, else the path that was typed: `.venv/bin/h2o-chat`."""
    given = sys.argv[0]
    return given if Path(given).name == NAME and not shutil.which(NAME) else NAME


def data_flag(folder: Path | None) -> str:
    """Returns ` --data FOLDER` for a folder that is not the default one, else an empty text."""
    return "" if folder in (None, data_folder(None)) else f" --data {shlex.quote(str(folder))}"


def python(program: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Returns the command and the environment of a process that runs a line of Python.

    It searches modules where this process does. With -P the current folder is not searched: it may hold a
    stranger's module.
    """
    ours_is_in = Path(h2o_chat.__file__).parents[1]
    places = [str(ours_is_in), *(place for place in sys.path if isinstance(place, str) and place)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, places))}
    return [sys.executable, "-P", "-c", program, *arguments], environment
