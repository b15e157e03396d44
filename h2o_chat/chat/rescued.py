"""A conversation whose store was lost while it went on: saved into a file, which `sessions import` reads."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from h2o_chat.base.own import own_folder
from h2o_chat.chat.message import Message, as_conversation


def rescue(
    folder: Path,
    messages: Sequence[Message],
    so_far: str,
    model: str,
    settings: dict[str, Any],
    into: Path | None,
) -> Path:
    """Writes what was said into a file of the data folder, which is made again if it is gone.

    Args:
        so_far: the text of the last answer while it streams.
        into: the file of the last time; None makes one.

    Raises:
        H2OChatError, OSError: it cannot be written.
    """
    from h2o_chat.chat.export import to_json, write_file  # imports rich, and is seldom needed

    own_folder(folder)
    if messages and messages[-1].role == "assistant" and messages[-1].finish is None:
        messages = [*messages[:-1], replace(messages[-1], text=so_far, finish="interrupted")]
    path = into or folder / f"rescued-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09}.json"
    whole = replace(as_conversation(messages, model), settings=settings)
    write_file(path, to_json(whole), force=into is not None)
    return path
