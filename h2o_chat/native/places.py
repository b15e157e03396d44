"""Where packed files lie, and which belong to a model. No torch."""

import contextlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from h2o_chat.models.fingerprint import fingerprint
from h2o_chat.native.header import Header, PackedError, read_whole_header
from h2o_chat.native.layout import VERSION

SUFFIX = ".h2o"
_NAME = re.compile(r"(weights-[0-9a-f]{12})-int([48])-(\d{1,9})\.h2o", re.ASCII)


def packed_folder() -> Path:
    """The folder of all packed files; it may not be there yet."""
    return platformdirs.user_cache_path("h2o-chat") / "packed"


def place_of(print_: str, bits: int) -> Path:
    """Where the packed file of weights with this fingerprint is, or will be."""
    return packed_folder() / f"{print_}-int{bits}-{VERSION}{SUFFIX}"


def home_of(folder: Path) -> str:
    """What stays when the weights of a model change: its folder, or the repository's in the cache."""
    folder = folder.resolve()
    return str(folder.parent.parent if folder.parent.name == "snapshots" else folder)


@dataclass(frozen=True)
class Kept:
    """A packed file on the disk, as far as its name and its header tell."""

    path: Path
    bytes: int
    fingerprint: str
    bits: int
    version: int
    header: Header | None
    """None: it cannot be read by this version, or is damaged (`wrong`)."""
    wrong: str = ""

    @property
    def home(self) -> str | None:
        """Of the model it was made from (`home_of`)."""
        return self.header.model if self.header else None

    @property
    def checked_at(self) -> float | None:
        """When its checksums were verified, in seconds since 1970; None: not since it last changed."""
        with contextlib.suppress(OSError):
            return _note_of(self.path).stat().st_mtime if is_checked(self.path, self.path.stat()) else None
        return None


def kept_files() -> list[Kept]:
    """All packed files, by name."""
    found = []
    for path in sorted(packed_folder().glob(f"*{SUFFIX}")):
        named = _NAME.fullmatch(path.name)
        if named is None or path.is_symlink():
            continue
        header, wrong = None, ""
        try:
            size = path.stat().st_size
            header = read_whole_header(path)
        except FileNotFoundError:  # it has just been removed
            continue
        except (OSError, PackedError) as error:
            wrong = error.message if isinstance(error, PackedError) else str(error)
        found.append(Kept(path, size, named[1], int(named[2]), int(named[3]), header, wrong))
    return found


def kept_of(folder: Path) -> tuple[list[Kept], list[Kept]]:
    """The packed files of a model's weights; and those of weights that its folder held before."""
    print_, home = fingerprint(folder), home_of(folder)
    mine = [one for one in kept_files() if one.fingerprint == print_ or one.home == home]
    now = [one for one in mine if one.fingerprint == print_ and one.version == VERSION]
    return now, [one for one in mine if one not in now]


def remove(path: Path) -> None:
    """Removes a packed file and what was noted of it; whoever has it open goes on reading.

    Raises:
        PackedError: it cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
        _note_of(path).unlink(missing_ok=True)
    except OSError as error:
        raise PackedError(f"{path} cannot be removed: {error.strerror}.", "Look at its folder.") from error


def is_checked(path: Path, about: os.stat_result) -> bool:
    """Whether the checksums of the file with this size, time and inode were verified."""
    try:
        noted = json.loads(_note_of(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return bool(noted == _identity(about))


def note_checked(path: Path, about: os.stat_result) -> None:
    """Notes that they were. Where that cannot be written they are verified at each opening."""
    note = _note_of(path)
    part = note.with_name(f"{note.name}.{os.getpid()}.part")
    with contextlib.suppress(OSError):
        try:
            part.write_text(json.dumps(_identity(about)))
            note.unlink(missing_ok=True)  # to replace a file, some file systems wait for the disk
            part.replace(note)
        finally:
            part.unlink(missing_ok=True)


def _identity(about: os.stat_result) -> dict[str, int]:
    return {"bytes": about.st_size, "mtime_ns": about.st_mtime_ns, "inode": about.st_ino}


def _note_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.checked")
