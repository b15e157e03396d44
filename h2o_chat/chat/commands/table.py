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
    Command(
        "pin", "[next|NUMBER|again NUMBER]", "protect a message: the next, one by its number, or said again"
    ),
    Command("unpin", "[NUMBER]", "let a pinned message be forgotten again"),
    Command("recall", "WORDS", "have the model read earlier words once more"),
    Command("why", "WORD|@POSITION", "why a word was kept or forgotten"),
    Command("find", "WORDS", "look for words in this conversation"),
    Command("copy", "[code|NUMBER]", "copy the last answer, its last code block, or a message"),
    Command("export", "md|json|html [FILE]", "this conversation as a file"),
    Command("regenerate", "[TEMPERATURE]", "answer the last message in other words"),
    Command("edit", "[NUMBER]", "say something else instead of a message"),
    Command("branch", "[NUMBER]", "go to what was said there before, and back"),
    Command("axis", "", "another axis for the strip: by tokens, by turns, by age"),
    Command("theme", "[NAME]", "other colours"),
    Command("editor", "", "write in $EDITOR"),
    Command("quit", "", "leave"),
)

_BY_NAME = {command.name: command for command in COMMANDS}


def parse(text: str) -> tuple[Command, str] | str:
    """A command and what stands behind it, or the text to send: `//` at its beginning stands for one slash.

    Raises:
        UsageError: it begins with one slash and is no command; names the nearest.
    """
    if not text.startswith("/"):
        return text
    if text.startswith("//"):
        return text[1:]
    word, _, rest = text[1:].partition(" ")
    word, newline, more = word.partition("\n")
    if command := _BY_NAME.get(word):
        return command, (more + rest if newline else rest).strip()
    raise UsageError(f"/{word} is no command.", f"{_near(word)} // sends a text that begins with /")


def _near(word: str) -> str:
    """The command that may have been meant."""
    name, slash, behind = word.lower().partition("/")
    near = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.5)
    if not near:
        return "/help shows them."
    said = f"{near[0]} {behind}" if slash and _BY_NAME[near[0]].arguments else near[0]
    return f"Did you mean /{said}?"


def is_command(text: str) -> bool:
    """Whether it is a command, or looks like one."""
    try:
        return not isinstance(parse(text), str)
    except UsageError:
        return True


def matching(text: str) -> list[Command]:
    """The commands that `/text` may become; all for `/`."""
    if not text.startswith("/") or any(character.isspace() for character in text):
        return []
    return [command for command in COMMANDS if command.name.startswith(text[1:].lower())]
