"""Writes the traceback of a bug of ours to a file that can be sent to somebody."""

import tempfile
from pathlib import Path

from platformdirs import user_log_path


def save_trace(trace: str) -> Path:
    """Writes a traceback to the log folder of the user, or to the temporary one; returns the file."""
    for folder in (user_log_path("h2o-chat"), Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", dir=folder, prefix="h2o-chat-bug-", suffix=".log", delete=False, encoding="utf-8"
            ) as file:
                file.write(trace)
                return Path(file.name)
        except OSError:
            continue
    raise OSError("no folder to write a traceback to")
