"""The slash commands, once: name, arguments, help, body. The screen and `--plain` type and show them."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from h2o_chat.base.errors import UsageError
from h2o_chat.chat.commands import bodies
from h2o_chat.chat.commands.surface import Surface

Where = Literal["screen", "plain"]


@dataclass(frozen=True)
class Command:
    name: str
    arguments: str
    """Shown behind the name; empty where there are none."""
    help: str
    body: Callable[[Surface, str], None] | None
    """Gets what stands behind the name. None: only the screen has it (`tui/prompt/screen_commands.py`)."""
    only: Where | None = None
    """The only place where it can be typed; None: both."""


COMMANDS = (
    Command("help", "", "the keys and these commands", lambda surface, _: surface.help()),
    Command("new", "", "begin another conversation", bodies.new),
    Command("open", "", "stored conversations: find, open, rename", bodies.open_stored),
    Command("rename", "TITLE", "another title for this conversation", bodies.rename),
    Command("system", "[TEXT]", "begin anew with this system prompt", bodies.system),
    Command(
        *("set", "[NAME VALUE]", "settings: how to answer, how to remember; all of them, or one"),
        bodies.setting,
    ),
    Command(*("policy", "NAME", "another policy; the memory is built again"), bodies.setting_named("policy")),
    Command("budget", "TOKENS|more", "another budget; the memory is built again", bodies.budget),
    Command(
        *("think", "on|off|low|high", "how the model thinks, where it can"), bodies.setting_named("think")
    ),
    Command(*("model", "[NAME]", "begin with another model; without a name: list the models"), bodies.model),
    Command("stats", "", "what the memory holds, in numbers", bodies.stats),
    Command("memory", "", "what the memory holds, in words", bodies.memory, only="plain"),
    Command(
        *("pin", "[next|NUMBER|again NUMBER]"),
        *("protect a message: the next, one by its number, or said again", bodies.pin),
    ),
    Command("unpin", "[NUMBER]", "let a pinned message be forgotten again", bodies.unpin),
    Command("recall", "WORDS", "have the model read earlier words once more", bodies.recall),
    Command("remember", "[TEXT]", "remember it, or the chosen message, everywhere", bodies.remember),
    Command("forget", "NUMBER", "forget something that /remember shows", bodies.forget),
    Command("why", "WORD|#NUMBER|@POSITION", "why a word, or a message, was kept or forgotten", bodies.why),
    Command("find", "WORDS", "look for words in this conversation", bodies.find),
    Command(
        *("copy", "[code|NUMBER]", "copy the last answer, the newest code, or a message"),
        *(None, "screen"),
    ),
    Command("export", "md|json [FILE]", "this conversation as a file", bodies.export),
    Command("regenerate", "[TEMPERATURE]", "answer the last message in other words", bodies.regenerate),
    Command("again", "", "the same as /regenerate", bodies.regenerate, only="plain"),
    Command("edit", "[NUMBER]", "say something else instead of a message", bodies.edit),
    Command("branch", "[NUMBER]", "go to what was said there before, and back", bodies.branch),
    Command("theme", "NAME", "other colours", None, only="screen"),
    Command("quiet", "", "the conversation alone, without its memory; and back", None, only="screen"),
    Command("editor", "", "write in $EDITOR", None, only="screen"),
    Command("quit", "", "leave", lambda surface, _: surface.leave()),
)


def commands(where: Where) -> list[Command]:
    return [command for command in COMMANDS if command.only in (None, where)]


def parse(text: str, where: Where = "screen") -> tuple[Command, str] | str:
    """A command and what stands behind it, or the text to send: `//` at its beginning stands for one slash.

    A command on one line may stand behind spaces. Any other text that begins with spaces and a slash is sent.

    Raises:
        UsageError: it begins with one slash and is no command here; names the nearest.
    """
    typed = text if "\n" in text.rstrip() else text.lstrip(" ")
    if typed.startswith("//") or not typed.startswith("/"):
        return text.removeprefix("/")
    word, _, rest = typed[1:].partition(" ")
    word, newline, more = word.partition("\n")
    there = {command.name: command for command in commands(where)}
    if command := there.get(word):
        return command, (more + rest if newline else rest).strip()
    if typed != text:
        return text
    if where == "plain" and any(command.name == word for command in COMMANDS):
        raise UsageError(f"/{word} works only on the screen, not in --plain.")
    raise UsageError(f"/{word} is no command.", f"{_near(word, there)} // sends a text that begins with /")


def _near(word: str, there: dict[str, Command]) -> str:
    name, slash, behind = word.lower().partition("/")
    near = difflib.get_close_matches(name, there, n=1, cutoff=0.5)
    if not near:
        return "/help shows them."
    meant = f"{near[0]} {behind}" if slash and there[near[0]].arguments else near[0]
    return f"Did you mean /{meant}?"


def is_command(text: str) -> bool:
    """Whether a text is a command of the screen, or looks like one."""
    try:
        return not isinstance(parse(text), str)
    except UsageError:
        return True


def matching(text: str) -> list[Command]:
    """The commands of the screen that `/text` may become; all for `/`."""
    if not text.startswith("/") or any(character.isspace() for character in text):
        return []
    return [command for command in commands("screen") if command.name.startswith(text[1:].lower())]
