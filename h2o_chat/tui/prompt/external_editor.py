"""Writes a prompt in the person's own editor."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from h2o_chat.base.errors import H2OChatError, UsageError, refusal


def edited(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text as the editor leaves it (VISUAL, EDITOR, else vi), which has the terminal meanwhile.

    Raises:
        UsageError: the editor cannot be started.
        H2OChatError: it failed, or left no text; the prompt stays as it was.
    """
    named = environment.get("VISUAL") or environment.get("EDITOR") or "vi"
    try:
        command = shlex.split(named)
    except ValueError as error:
        raise UsageError(f"EDITOR is {named!r}: {error}.") from error
    with tempfile.TemporaryDirectory(prefix="h2o-chat-") as folder:  # 0700
        path = Path(folder) / "prompt.md"
        path.write_text(text, "utf-8", "replace")
        try:
            code = subprocess.run([*command, str(path)]).returncode
        except OSError as error:
            raise UsageError(
                f"The editor {named!r} cannot be started: {error.strerror}.",
                "Set EDITOR to one that is here.",
            ) from error
        if code:
            raise H2OChatError(f"The editor {named!r} ended with {code}: the prompt stays as it was.")
        try:
            return path.read_text("utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise H2OChatError(f"What the editor left cannot be read: {refusal(error)}.") from error
