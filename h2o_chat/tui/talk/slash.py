"""The commands that begin with a slash: one table for the menu, the help, the palette and what is done."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from h2o_chat.base.errors import UsageError
from h2o_chat.tui.talk import acts

if TYPE_CHECKING:
    from h2o_chat.tui.talk.talk import TalkPane


@dataclass(frozen=True)
class Command:
    """One row of the table below."""

    name: str
    arguments: str
    """As they are shown; empty where there are none."""
    help: str
    act: Callable[["TalkPane", str], None]
    """Gets what stands behind the name."""


COMMANDS = (
    Command("help", "", "the keys and these commands", acts.show_help),
    Command("new", "", "begin another conversation", lambda pane, _: pane.action_new()),
    Command(
        "open", "", "stored conversations: find, open, rename", lambda pane, _: pane.action_conversations()
    ),
    Command("system", "[TEXT]", "begin anew with this system prompt", acts.system),
    Command(
        "set", "[NAME VALUE]", "settings: how to answer, how to remember; all of them, or one", acts.change
    ),
    Command("policy", "NAME", "another policy; the memory is built again", acts.short("policy")),
    Command("budget", "TOKENS", "another budget; the memory is built again", acts.short("budget")),
    Command("model", "[NAME]", "begin with another model; without a name: which there are", acts.model),
    Command("stats", "", "what the memory holds, in numbers", acts.stats),
    Command("pin", "[next|NUMBER]", "protect a message: the chosen one, or the next you send", acts.pin),
    Command("unpin", "[NUMBER]", "let a pinned message be forgotten again", acts.unpin),
    Command("why", "WORD|@POSITION", "why a token was kept or dropped", acts.why),
    Command("find", "WORDS", "look for words in this conversation", acts.find),
    Command("copy", "[code|NUMBER]", "copy the last answer, its last code block, or a message", acts.copy),
    Command("export", "md|json|html [FILE]", "this conversation as a file", acts.export),
    Command("regenerate", "", "answer the last message once more", lambda pane, _: pane.action_regenerate()),
    Command("edit", "[NUMBER]", "say something else instead of a message", acts.edit),
    Command("branch", "[NUMBER]", "go to what was said there before, and back", acts.branch),
    Command("theme", "[NAME]", "other colours", acts.theme),
    Command("editor", "", "write in $EDITOR", lambda pane, _: pane.prompt.action_editor()),
    Command("quit", "", "leave", lambda pane, _: pane.app.exit()),
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
