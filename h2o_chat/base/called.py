"""How this program was called, for commands that a person may type next."""

import shutil
import sys
from pathlib import Path

NAME = "h2o-chat"


def called() -> str:
    """`h2o-chat` where the shell finds it by that name, else as it was called: `.venv/bin/h2o-chat`."""
    given = sys.argv[0]
    return given if Path(given).name == NAME and not shutil.which(NAME) else NAME
