"""How this program was called, for commands that a person may type next."""

import shlex
import shutil
import sys
from pathlib import Path

from h2o_chat.base.config import data_folder

NAME = "h2o-chat"


def called() -> str:
    """`h2o-chat` where the shell finds it by that name, else as it was called: `.venv/bin/h2o-chat`."""
    given = sys.argv[0]
    return given if Path(given).name == NAME and not shutil.which(NAME) else NAME


def data_flag(folder: Path | None) -> str:
    """The flag for a data folder in which the program does not look by itself; a blank before it."""
    return "" if folder in (None, data_folder(None)) else f" --data {shlex.quote(str(folder))}"
