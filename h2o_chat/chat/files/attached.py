"""`@file` in a prompt: the text of the file is sent along, with its path."""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from h2o_chat.base.errors import H2OChatError, UsageError

LIMIT_BYTES = 256 * 1024
"""For all files of one message together."""

_NAMED = re.compile(r'(?:(?<=\s)|^)@(@|"[^"\n]+"|[^\s@"][^\s]*)')
_TYPED = re.compile(r"(?:^|\s)@([^\s@\"]*)$")


@dataclass(eq=False)
class AttachedFiles:
    """The files of a message, while they are read."""

    text: str
    """The message; after reading, with the files."""
    error: H2OChatError | None = None
    """Why the files cannot be read."""

    def begin(self, tell: Callable[["AttachedFiles"], None]) -> None:
        """Read them in a thread and tell: a network that is gone may never answer, nor may /proc/kmsg."""

        def read() -> None:
            try:
                self.text = with_files(self.text)
            except H2OChatError as error:
                self.error = error
            tell(self)

        threading.Thread(target=read, name="files", daemon=True).start()


def names_files(text: str) -> bool:
    """Whether a text may name files, so that `with_files` is needed."""
    return _NAMED.search(text) is not None


def path_being_typed(before: str) -> str | None:
    """The text behind an `@` at the end of a text; None where there is none."""
    found = _TYPED.search(before)
    return None if found is None else found[1]


def with_files(text: str) -> str:
    """The text, and below it every file that it names with an `@`: `@@` stands for an `@`.

    A word like `@anna` that is no file and does not look like a path stays as it is.

    Raises:
        UsageError: a file is not there, cannot be read, is too large or is no text; says which.
    """
    files: dict[str, str] = {}
    left = LIMIT_BYTES

    def plain(found: re.Match[str]) -> str:
        nonlocal left
        name = found[1].strip('"')
        if name == "@":
            return "@"
        if (content := _read(name, left)) is None:
            return found[0]
        if name not in files:
            files[name] = content
            left -= len(content.encode())
        return name

    said = _NAMED.sub(plain, text)
    return said + "".join(f"\n\n{name}:\n{_fenced(content)}" for name, content in files.items())


def _read(name: str, left: int) -> str | None:
    """The text of a file; None if the name does not look like one."""
    try:
        path = Path(name).expanduser()
        there = path.exists()
    except (OSError, RuntimeError, ValueError):
        there = False
    if not there:
        if "/" not in name and not re.search(r"\.\w{1,5}$", name):
            return None
        raise UsageError(f"There is no file {name!r}.", "@@ sends an @ that names no file.")
    if not path.is_file():
        raise UsageError(f"{name!r} is no file.", "Name one file with each @: no folder, pipe or device.")
    try:
        with path.open("rb") as file:
            raw = file.read(left + 1)
    except OSError as error:
        raise UsageError(f"{name!r} cannot be read: {error.strerror}.") from error
    if len(raw) > left:
        raise UsageError(
            f"{name!r} is too large: the files of a message may have {LIMIT_BYTES // 1024} KiB together."
        )
    try:
        content = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name!r} is no UTF-8 text.", "Only texts can be sent along.") from error
    if "\0" in content:
        raise UsageError(f"{name!r} is no text: it has NUL bytes.", "Only texts can be sent along.")
    return content.replace("\r\n", "\n")


def _fenced(content: str) -> str:
    """A fence longer than any inside."""
    longest = max((len(run) for run in re.findall(r"`{3,}", content)), default=2)
    marks = "`" * (longest + 1)
    return f"{marks}\n{content.rstrip()}\n{marks}"
