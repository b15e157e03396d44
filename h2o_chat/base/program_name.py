"""The program's name in commands that a message suggests."""

import shlex
import shutil
import sys
from pathlib import Path

from h2o_chat.base.config import data_folder

NAME = "h2o-chat"


def program_name() -> str:
    """Returns `h2o-chat` if the shell finds it so, else the path that was typed: `.venv/bin/h2o-chat`."""
    given = sys.argv[0]
    return given if Path(given).name == NAME and not shutil.which(NAME) else NAME


def data_flag(folder: Path | None) -> str:
    """Returns ` --data FOLDER` for a folder that is not the default one, else an empty text."""
    return "" if folder in (None, data_folder(None)) else f" --data {shlex.quote(str(folder))}"
