"""How a Python of ours is started beside this one."""

import os
import sys
from pathlib import Path

import h2o_chat


def python(program: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a process that runs a line of Python.

    -P: a module that lies where somebody happens to stand is not ours. Modules are looked for where this
    process looks.
    """
    ours_is_in = Path(h2o_chat.__file__).parents[1]
    places = [str(ours_is_in), *(place for place in sys.path if isinstance(place, str) and place)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, places))}
    return [sys.executable, "-P", "-c", program, *arguments], environment
