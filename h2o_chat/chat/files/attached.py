"""`@file` in a prompt: the text of the file, or of a folder's files, is sent along, with its path."""

import codecs
import io
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from h2o_chat.base.errors import H2OChatError, UsageError, refusal
from h2o_chat.base.program_name import python
from h2o_chat.base.safe import raw_text

LIMIT_BYTES = 2 << 20
"""Most text, of all files of one message together: four books."""
MOST_FILES = 1000
"""In a folder that is sent along."""
PDF, PDF_LIMIT_BYTES = b"%PDF-", 64 << 20
"""A PDF file begins with this, and may be so large."""
PDF_LIMIT_S, PDF_MEMORY_BYTES = 60.0, 2 << 30
"""Limits of the process that reads a PDF file; of its memory, where the system can limit it."""
NOT_INSTALLED = 3
"""Exit code of that process: pypdf is missing."""

_NAMED = re.compile(r'(?:(?<=\s)|^)@(@|"[^"\n]+"|[^\s@"][^\s]*)')
_ENDED = re.compile(r"[.!?:\u2026\u3002\uff01\uff1f\u061f\u0964][\"'»”)\]]*$")
"""The end of a sentence."""
_ENDINGS = (
    "txt|text|md|markdown|rst|org|tex|pdf|csv|tsv|json|jsonl|toml|yaml|yml|ini|cfg|conf|log|xml|html|htm|css|"
    "py|ipynb|js|jsx|ts|tsx|c|h|cc|cpp|hpp|cs|java|kt|swift|rs|go|rb|php|pl|lua|r|sh|sql|diff|patch|srt|vtt"
)
_MEANT = re.compile(rf"[/~]|\.{{1,2}}/|\.\w|.*(/|\.({_ENDINGS}))$", re.IGNORECASE)
"""A name that plainly means a file: it begins or ends as one does, or ends as a folder does."""
_TYPED = re.compile(r"(?:^|\s)@([^\s@\"]*)$")


@dataclass(eq=False)
class AttachedFiles:
    """The files of a message, while they are read."""

    text: str
    """The message; after reading, with the files."""
    error: H2OChatError | None = None

    def begin(self, tell: Callable[["AttachedFiles"], None]) -> None:
        """Read them in a thread and tell: a network that is gone may never answer, nor may /proc/kmsg."""

        def read() -> None:
            try:
                self.text = with_files(self.text)
            except H2OChatError as error:
                self.error = error
            except Exception as error:  # without an error the bare text would be sent
                what = f"{type(error).__name__}: {error}"
                self.error = H2OChatError(f"The files of the message cannot be read: {what}")
            finally:
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
    """The text, and above it every file that it names with an `@`: `@@` stands for an `@`.

    A folder stands for the texts in it and below it. A word that is no file stays as it is, unless it plainly
    means one: code has `@functools.cache` and `@types/node`. The question stands last: models that forget
    answer what they read last. Names behind the last sentence are left out: models say that they cannot open
    them.

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
        name, mark = _without_mark(name)
        if (path := _path(name)) is None:
            return found[0]
        for one in _files_below(path) if os.path.isdir(path) else [path]:
            shown = raw_text(os.fsencode(one).decode("utf-8", "replace")).replace("\n", "↵")
            if shown not in files:
                files[shown] = _read(one, left)
                left -= len(files[shown].encode())
        return name + mark if found.start() < attached_from else ""

    attached_from = _attached_from(text)
    said = _NAMED.sub(plain, text)
    said = said if attached_from == len(text) else said.rstrip()
    return "".join(f"{name}:\n{_fenced(content)}\n\n" for name, content in files.items()) + said


def _attached_from(text: str) -> int:
    """Where the names behind the last sentence begin; its length, if other words or names come in between."""
    names = list(_NAMED.finditer(text))
    start = names[0].start() if names else len(text)
    between = [text[one.end() : other.start()] for one, other in pairwise(names)]
    plain = all(_stands(one[1].strip('"')) for one in names)
    alone = plain and not "".join([*between, text[names[-1].end() :]]).strip() if names else False
    return start if alone and _ENDED.search(text[:start].rstrip()) else len(text)


def _without_mark(name: str) -> tuple[str, str]:
    """The name of a file, and the mark of the sentence behind it: `notes/` and `?`."""
    bare = re.sub(r"[^\w/]+$", "", name)
    if bare and not _stands(name) and _stands(bare):
        return bare, name[len(bare) :]
    return name, ""


def _stands(name: str) -> bool:
    """Whether there is a file or folder of this name; `~nobody` and names with NUL are none."""
    try:
        return Path(name).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        return False


def _path(name: str) -> Path | None:
    """The file or folder of a name; None if there is none, and the name does not plainly mean one."""
    if re.match(r"https?://", name):
        what = f"{name!r} is an address, and h2o-chat opens no network."
        raise UsageError(what, "Save the page as a file, and name that.")
    if _stands(name):
        return Path(name).expanduser()
    if _MEANT.match(name := name.rstrip(".,;:!?")):
        raise UsageError(f"There is no file {name!r}.", "@@ sends an @ that names no file.")
    return None


def _files_below(folder: Path) -> list[Path]:
    """The texts and PDFs of a folder, by name; hidden ones, links and what cannot be read are left out."""
    found = []
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        paths = [Path(at, name) for name in sorted(names) if not name.startswith(".")]
        found += [one for one in paths if os.path.isfile(one) and not one.is_symlink() and _is_text(one)]
        if len(found) > MOST_FILES:
            raise UsageError(f"{str(folder)!r} has more than {MOST_FILES} texts.", "Name a smaller folder.")
    if not found:
        raise UsageError(f"{str(folder)!r} has no text that could be sent along.")
    return found


def _is_text(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            raw = file.read(LIMIT_BYTES + 1)
    except OSError:
        return False
    if raw.startswith(PDF):
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(raw)  # its last letter may be cut
    except UnicodeDecodeError:
        return False
    return b"\0" not in raw


def _read(path: Path, left: int) -> str:
    name = str(path)
    if not os.path.isfile(path):
        raise UsageError(f"{name!r} is no file.", "Name a file or a folder: no pipe or device.")
    try:
        with path.open("rb") as file:
            raw = file.read(max(left, PDF_LIMIT_BYTES) + 1)
    except OSError as error:
        raise UsageError(f"{name!r} cannot be read: {error.strerror}.") from error
    if raw.startswith(PDF) and len(raw) <= PDF_LIMIT_BYTES:
        raw = _pdf_text(raw, name, left)
    if len(raw) > left:
        limit = LIMIT_BYTES >> 20
        raise UsageError(
            f"{name!r} is too large: the files of a message may have {limit} MiB of text together."
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


def _pdf_text(raw: bytes, name: str, most_bytes: int) -> bytes:
    """The text of a PDF file, page by page, up to a little over `most_bytes`.

    It is read in a process of its own: a stranger's file may take any time and memory.

    Raises:
        UsageError: it is damaged, encrypted, takes too long, or holds no text; or pypdf is not installed.
    """
    line = "import sys; from h2o_chat.chat.files.attached import read_pdf; sys.exit(read_pdf())"
    command, environment = python(line, str(most_bytes))
    try:
        done = subprocess.run(
            command, env=environment, input=raw, capture_output=True, timeout=PDF_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{name!r} takes longer than {PDF_LIMIT_S:.0f} s to read as PDF.") from error
    except OSError as error:  # the process cannot be started
        raise UsageError(f"{name!r} cannot be read as PDF: {refusal(error)}.") from error
    if done.returncode == NOT_INSTALLED:
        raise UsageError("PDF files are read by pypdf.", "pip install 'h2o-chat[pdf]'")
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it ended"]
        raise UsageError(f"{name!r} cannot be read as PDF: {lines[-1][:200]}")
    if not done.stdout.decode().strip():  # bytes would not strip blanks that are not ASCII
        raise UsageError(f"{name!r} holds no text: its pages are pictures.")
    return done.stdout


def read_pdf() -> int:
    """Runs in that process: a file on stdin, its text to stdout; returns the exit code."""
    try:
        import pypdf
    except ModuleNotFoundError:
        return NOT_INSTALLED
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (PDF_MEMORY_BYTES, PDF_MEMORY_BYTES))
    left = int(sys.argv[1])
    for page in pypdf.PdfReader(io.BytesIO(sys.stdin.buffer.read())).pages:
        text = (page.extract_text() + "\n\n").encode("utf-8", "replace")
        sys.stdout.buffer.write(text)
        left -= len(text)
        if left < 0:
            break  # it is refused for its size
    return 0
