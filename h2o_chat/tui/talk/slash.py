"""The commands that begin with a slash: what the menu, the help and the palette show. `acts.py` does them."""

import difflib
from dataclasses import dataclass

from h2o_chat.base.errors import UsageError


@dataclass(frozen=True)
class Command:
    """One row of the table below."""

    name: str
    arguments: str
    """As they are shown; empty where there are none."""
    help: str


COMMANDS = (
    Command("help", "", "the keys and these commands"),
    Command("new", "", "begin another conversation"),
    Command("open", "", "stored conversations: find, open, rename"),
    Command("system", "[TEXT]", "begin anew with this system prompt"),
    Command("set", "[NAME VALUE]", "settings: how to answer, how to remember; all of them, or one"),
    Command("policy", "NAME", "another policy; the memory is built again"),
    Command("budget", "TOKENS", "another budget; the memory is built again"),
    Command("model", "[NAME]", "begin with another model; without a name: which there are"),
    Command("stats", "", "what the memory holds, in numbers"),
    Command("pin", "[next|NUMBER]", "protect a message: the chosen one, or the next you send"),
    Command("unpin", "[NUMBER]", "let a pinned message be forgotten again"),
    Command("why", "WORD|@POSITION", "why a word was kept or forgotten"),
    Command("find", "WORDS", "look for words in this conversation"),
    Command("copy", "[code|NUMBER]", "copy the last answer, its last code block, or a message"),
    Command("export", "md|json|html [FILE]", "this conversation as a file"),
    Command("regenerate", "", "answer the last message once more"),
    Command("edit", "[NUMBER]", "say something else instead of a message"),
    Command("branch", "[NUMBER]", "go to what was said there before, and back"),
    Command("theme", "[NAME]", "other colours"),
    Command("editor", "", "write in $EDITOR"),
    Command("quit", "", "leave"),
)

_BY_NAME = {command.name: command for command in COMMANDS}


def parse(text: str) -> tuple[Command, str] | str:
    """A command and what stands behind it, or the text to send: `//` at its beginning stands for one slash.

    A text like `/etc/hosts is empty` is no command: its first word has a slash inside.

    Raises:
        UsageError: it looks like a command and is none; names the nearest.
    """
    if not text.startswith("/"):
        return text
    if text.startswith("//"):
        return text[1:]
    word, _, rest = text[1:].partition(" ")
    word, newline, more = word.partition("\n")
    if command := _BY_NAME.get(word):
        return command, (more + rest if newline else rest).strip()
    if not word or not all(character.isalnum() or character in "-_" for character in word):
        return text
    near = difflib.get_close_matches(word.lower(), _BY_NAME, n=1, cutoff=0.5)
    raise UsageError(
        f"/{word} is no command.",
        (f"Did you mean /{near[0]}? " if near else "/help shows them. ")
        + "// sends a text that begins with /",
    )


def matching(text: str) -> list[Command]:
    """The commands that `/text` may become; all for `/`."""
    if not text.startswith("/") or any(character.isspace() for character in text):
        return []
    return [command for command in COMMANDS if command.name.startswith(text[1:].lower())]
