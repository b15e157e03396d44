"""A conversation as a file: Markdown to read, JSON with everything.

Markdown holds the active branch. JSON holds all branches, positions and token ids, and is what
`importer.py` reads.
"""

import json
import os
import re
import unicodedata
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from h2o_chat.base.errors import StoreError, UsageError
from h2o_chat.base.safe import safe_text
from h2o_chat.chat.conversation.message import Message, from_stored, numbered
from h2o_chat.store import Conversation, StoredMessage

FORMAT = "h2o-chat conversation"
SCHEMA = 1

MARKS = {
    "length": "cut at the token limit",
    "stopped": "stopped",
    "error": "failed",
    "interrupted": "interrupted: the program ended before the answer did",
}
"""Shown behind an answer that was ended by something."""

_FILE_NAME_CHARACTERS = 50  # at four bytes each a title of this length fits where names have 255 bytes


def to_json(conversation: Conversation) -> str:
    """All branches, one message a line. In ASCII: nothing that shows or sends it obeys a character of it."""
    names = ("id", "title", "model", "created", "updated", "settings", "leaf")
    data = {"format": FORMAT, "schema": SCHEMA} | {name: getattr(conversation, name) for name in names}
    messages = ",\n".join(json.dumps(_as_dict(message)) for message in conversation.messages)
    return json.dumps(data)[:-1] + f', "messages": [\n{messages}\n]}}\n'


def to_markdown(conversation: Conversation) -> str:
    """The active branch. Messages stand unchanged, since they often are Markdown themselves."""
    title = conversation.title or f"Conversation {conversation.id}"
    parts = [f"# {_escape_markdown(one_line(title))}", f"*{_about(conversation)}*"]
    branch = conversation.branch()
    recalled = [_recalled(message) for message in from_stored(branch)]
    for index, message in enumerate(branch):
        parts += [f"## {numbered(index)} {message.role}", _closed(message.text)]
        if mark := mark_of(message):
            parts.append(f"*[{mark}]*")
        parts += [f"*[{_escape_markdown(one_line(line))}]*" for line in recalled[index]]
    return "\n\n".join(parts) + "\n"


FORMATS: dict[str, Callable[[Conversation], str]] = {"md": to_markdown, "json": to_json}


def file_name(conversation: Conversation, suffix: str) -> str:
    """A name made of the title: letters, digits and hyphens only, so that it leads into no other folder."""
    plain = unicodedata.normalize("NFKC", conversation.title).lower()
    words = re.sub(r"[\W_]+", "-", plain)[:_FILE_NAME_CHARACTERS].strip("-")
    return "-".join(part for part in (words, conversation.id) if part) + f".{suffix}"


def write_file(path: Path, text: str, force: bool) -> None:
    """Writes a new file for its owner alone, completely or not at all; `force` replaces another.

    Raises:
        UsageError: it is there, or its folder is not.
        StoreError: it cannot be written.
    """
    new = path.with_name(f"{path.name}.{os.getpid()}") if force else path
    try:
        # "x": never through a link either
        with open(new, "x", encoding="utf-8", newline="\n", opener=partial(os.open, mode=0o600)) as file:
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
                if force:
                    os.replace(new, path)
            except BaseException:
                new.unlink()
                raise
    except FileExistsError as error:
        raise UsageError(f"{path} is there already.", "Choose another name, or say --force.") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"{path.parent} is no folder.", "Make it first, or choose another.") from error
    except OSError as error:
        hint = "Nothing was changed there. Look at the folder and its disk."
        raise StoreError(f"{path} cannot be written: {error.strerror}.", hint) from error


def mark_of(message: StoredMessage) -> str:
    return MARKS.get(message.finish or "", "")


def one_line(text: str) -> str:
    """A title on one line, with control characters made visible."""
    return " ".join(safe_text(text).split())


def when(seconds: float) -> str:
    """Local date and time, to the minute."""
    try:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return "?"


def _as_dict(message: StoredMessage) -> dict[str, Any]:
    usual = ("id", "parent", "role", "text", "finish", "first", "last", "ids", "created")
    few = [name for name in ("pinned", "recalled") if getattr(message, name)]
    return {name: getattr(message, name) for name in (*usual, *few)}


def _recalled(message: Message) -> list[str]:
    return [
        f"recalled{f' from {numbered(one.index)}' if one.index >= 0 else ''}: “{one.words}”"
        for one in message.recalled
    ]


def _about(conversation: Conversation) -> str:
    model = one_line(conversation.model)
    elsewhere = len(conversation.messages) - len(conversation.branch())
    about = ", ".join(filter(None, (when(conversation.created), model)))
    return f"{about}; {elsewhere} messages of other branches are not shown" if elsewhere else about


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#&|~$])", r"\\\1", text)


def _closed(text: str) -> str:
    """The text, with an open code block closed: it would go on through all that follows."""
    fence = ""
    for marks, rest in re.findall(r"^ {0,3}(`{3,}|~{3,})(.*)$", text, re.MULTILINE):
        if not fence:
            fence = marks if "~" in marks or "`" not in rest else ""
        elif marks.startswith(fence) and not rest.strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text
