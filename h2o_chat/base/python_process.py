"""Starts another Python process of this program."""

import os
import sys
from pathlib import Path

import h2o_chat


def python(program: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Returns the command and the environment of a process that runs a line of Python.

    It searches modules where this process does. With -P the current folder is not searched: it may hold a
    stranger's module.
    """
    ours_is_in = Path(h2o_chat.__file__).parents[1]
    places = [str(ours_is_in), *(place for place in sys.path if isinstance(place, str) and place)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, places))}
    return [sys.executable, "-P", "-c", program, *arguments], environment
