"""The prompt, from the command line, a pipe or a script: text, of a sensible length; else UsageError."""

import os
import select
import sys
from json import loads
from pathlib import Path
from typing import BinaryIO

from h2o_chat.base.errors import UsageError, name_of, refusal
from h2o_chat.chat.conversation.message import not_too_long
from h2o_chat.cli.run import turns_of
from h2o_chat.engine.lark import json_rule

MAX_BYTES = 16 << 20
"""Limit for a prompt or a script; for a message see `message.LONGEST_CHARACTERS`."""
SILENT_S = 3.0
"""After so long stderr says that a pipe is waited for."""


def prompt_of(words: str | None, pipe: BinaryIO | None) -> str:
    """The prompt: the words of the command line, with the piped text behind them."""
    if pipe is not None and words:
        _say_what_is_waited_for(pipe)
    piped = "" if pipe is None else decode(_limited(pipe, "stdin"), "stdin").strip("\n")
    # The command line comes in the encoding of the system, but its bytes are UTF-8.
    words = decode(os.fsencode(words), "The prompt") if words else ""
    said = [text for text in (words, piped) if text]
    if not any(text.strip() for text in said):  # blanks are tokens too, but nothing is said with them
        raise UsageError("There is nothing to say.", "Give a prompt, pipe one in, or use --script FILE.")
    return not_too_long("\n\n".join(said))


def read_script(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            raw = _limited(file, str(path))
    except (OSError, ValueError) as error:  # ValueError: there is a NUL in the name
        raise UsageError(f"{path} cannot be read: {refusal(error)}.", "Give a text file of turns.") from error
    return [not_too_long(turn) for turn in turns_of(decode(raw, str(path)))]


def decode(raw: bytes, what: str) -> str:
    """UTF-8 text."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} is not UTF-8 text ({error.reason} at byte {error.start}).") from error
    nul = text.find("\0")
    if nul >= 0:
        raise UsageError(
            f"{what} is no text: character {nul + 1:,} is a NUL.",
            "If it is UTF-16, write it as UTF-8; programs and archives cannot be said.",
        )
    return text


def _say_what_is_waited_for(pipe: BinaryIO) -> None:
    """Says so when a pipe stays open without data: nobody can tell a forgotten pipe from a slow writer."""
    try:
        ready, _, _ = select.select([pipe], [], [], SILENT_S)
    except (OSError, ValueError):  # nothing that can be waited for
        return
    if not ready:
        sys.stderr.write("h2o-chat: waiting for the end of what is piped in; without any: < /dev/null\n")


def _limited(stream: BinaryIO, what: str) -> bytes:
    raw = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{what} is larger than {MAX_BYTES >> 20} MiB.", "Say it in parts.")
    return raw


def grammar_of(file: Path) -> str:
    """The grammar of JSON that a file's JSON schema describes."""
    try:
        schema = loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--schema {name_of(file)} is no file of JSON: {refusal(error)}.") from error
    if not isinstance(schema, dict):
        raise UsageError(f"--schema {name_of(file)} is no JSON object.", 'Write {"type": "object", ...}.')
    return f"start: {json_rule(schema)}"
