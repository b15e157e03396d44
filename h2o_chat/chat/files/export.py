"""A conversation as a file: Markdown and HTML to read, JSON with everything.

Markdown and HTML hold the active branch. JSON holds all branches, positions and token ids, and is what
`importer.py` reads.
"""

import base64
import hashlib
import html
import json
import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
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

_FILE_NAME_CHARACTERS = 50
"""At four bytes each a title of this length fits where names have 255 bytes."""


def to_json(conversation: Conversation) -> str:
    """All branches, one message a line. In ASCII, so that nothing that shows or sends it obeys a character of
    it."""
    data: dict[str, Any] = {
        "format": FORMAT,
        "schema": SCHEMA,
        "id": conversation.id,
        "title": conversation.title,
        "model": conversation.model,
        "created": conversation.created,
        "updated": conversation.updated,
        "settings": conversation.settings,
        "leaf": conversation.leaf,
    }
    messages = ",\n".join(json.dumps(_as_dict(message)) for message in conversation.messages)
    return json.dumps(data)[:-1] + f', "messages": [\n{messages}\n]}}\n'


def to_markdown(conversation: Conversation) -> str:
    """The active branch. Messages stand unchanged, since they often are Markdown themselves."""
    parts = [f"# {_escape_markdown(one_line(_title(conversation)))}", f"*{_about(conversation)}*"]
    branch = conversation.branch()
    recalled = [_recalled(message) for message in from_stored(branch)]
    for index, message in enumerate(branch):
        parts += [f"## {numbered(index)} {message.role}", _closed(message.text)]
        if mark := mark_of(message):
            parts.append(f"*[{mark}]*")
        parts += [f"*[{_escape_markdown(one_line(line))}]*" for line in recalled[index]]
    return "\n\n".join(parts) + "\n"


Heat = Mapping[int, Sequence[tuple[str, float]]]
"""For each message id: (text, share of the caches that hold it) of its tokens."""


def to_html(conversation: Conversation, heat: Heat | None = None) -> str:
    """The active branch as one page, which loads and runs nothing.

    Args:
        heat: the more caches hold a word of these messages, the darker its background.
    """
    style = _STYLE + (_HEAT_STYLE if heat else "")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    branch = conversation.branch()
    said = "\n".join(
        _article(index, message, (heat or {}).get(message.id), _recalled(read))
        for index, (message, read) in enumerate(zip(branch, from_stored(branch), strict=True))
    )
    legend = _LEGEND if heat else ""
    title = _escape_html(one_line(_title(conversation)))
    return f"""<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1 dir="auto">{title}</h1>
<p class="about">{_escape_html(_about(conversation))}</p>
{legend}{said}
</main>
</body>
</html>
"""


FORMATS: dict[str, Callable[[Conversation], str]] = {"md": to_markdown, "json": to_json, "html": to_html}


def file_name(conversation: Conversation, suffix: str) -> str:
    """A name made of the title: letters, digits and hyphens only, so that it never leads into another
    folder."""
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
        with open(new, "x", encoding="utf-8", newline="\n", opener=_privately) as file:
            try:
                file.write(text)
                file.flush()
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
        raise StoreError(f"{path} cannot be written: {error.strerror}.") from error


def _privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def mark_of(message: StoredMessage) -> str:
    """The mark behind an answer that was ended by something."""
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
    """Lines that say what the model read once more with a message."""
    return [
        f"recalled{f' from {numbered(one.index)}' if one.index >= 0 else ''}: “{one.words}”"
        for one in message.recalled
    ]


def _title(conversation: Conversation) -> str:
    return conversation.title or f"Conversation {conversation.id}"


def _about(conversation: Conversation) -> str:
    model = one_line(conversation.model)
    elsewhere = len(conversation.messages) - len(conversation.branch())
    return (
        f"{when(conversation.created)}"
        + (f", {model}" if model else "")
        + (f"; {elsewhere} messages of other branches are not shown" if elsewhere else "")
    )


def _escape_markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#&|~$])", r"\\\1", text)


def _closed(text: str) -> str:
    """The text, with an open code block closed: it would go on through all that follows."""
    fence = ""
    for line in text.split("\n"):
        found = re.match(r" {0,3}(`{3,}|~{3,})(.*)", line)
        if found is None:
            continue
        marks, rest = found.groups()
        if not fence:
            fence = marks if "~" in marks or "`" not in rest else ""
        elif marks.startswith(fence) and not rest.strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text


def _article(
    index: int, message: StoredMessage, heat: Sequence[tuple[str, float]] | None, recalled: Sequence[str]
) -> str:
    mark = mark_of(message)
    text = _heated(heat) if heat else _escape_html(message.text)
    role = _escape_html(message.role)
    return (
        f'<article class="{role}">\n<h2>{numbered(index)} {role}</h2>\n'
        f'<div class="text" dir="auto">{text}</div>\n'
        + (f'<p class="mark">{_escape_html(mark)}</p>\n' if mark else "")
        + "".join(f'<p class="recalled">{_escape_html(line)}</p>\n' for line in recalled)
        + "</article>"
    )


def _heated(tokens: Sequence[tuple[str, float]]) -> str:
    """Neighbours of equal hold share one element; forgotten ones are struck through too."""
    parts = []
    for level, alike in groupby(tokens, lambda token: _level(token[1])):
        text = _escape_html("".join(piece for piece, _ in alike))
        parts.append(f"<s>{text}</s>" if level == 0 else f'<mark class="h{level}">{text}</mark>')
    return "".join(parts)


def _level(hold: float) -> int:
    """0 for forgotten tokens, then 1 to 8."""
    return 0 if hold <= 0 else min(1 + int(hold * 8), 8)


def _escape_html(text: str) -> str:
    return html.escape(safe_text(text))


_STYLE = """
:root { color-scheme: light dark; --ground: #fbfbf9; --ink: #1d2329; --quiet: #5d6873; --line: #d9dde1;
  --mine: #eef2f5; --warn: #8a5a00; }
@media (prefers-color-scheme: dark) { :root { --ground: #12161c; --ink: #d5dbe3; --quiet: #93a0ad;
  --line: #2c3541; --mine: #1a2029; --warn: #e0a84e; } }
body { margin: 0; background: var(--ground); color: var(--ink); font: 1rem/1.55 system-ui, sans-serif; }
main { max-width: 46rem; margin: 0 auto; padding: 2rem 1rem 4rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
.about { color: var(--quiet); margin: .25rem 0 2rem; }
article { border-top: 1px solid var(--line); padding: 1rem; }
article.user { background: var(--mine); }
h2 { font-size: .8rem; font-weight: 600; color: var(--quiet); margin: 0 0 .35rem; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; }
.mark { color: var(--warn); font-size: .9rem; margin: .5rem 0 0; }
.recalled { color: var(--quiet); font-size: .9rem; margin: .5rem 0 0; }
@media print { article { break-inside: avoid; } }
"""

_LEGEND = (
    '<p class="about"><s>gone</s> '
    + "".join(f'<mark class="h{level}">&nbsp;{level}/8&nbsp;</mark>' for level in range(1, 9))
    + " of the caches hold it</p>\n"
)

_HEAT_STYLE = "s { color: var(--quiet); } mark { color: inherit; }\n" + "\n".join(
    f"mark.h{level} {{ background: rgb(224 150 40 / {level * 9}%); }}" for level in range(1, 9)
)
