"""Finds packed files on the disk, and those of a model. No torch."""

import re
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from h2o_chat.models.fingerprint import fingerprint
from h2o_chat.native.layout import VERSION
from h2o_chat.native.packed_header import PackedError, PackedHeader, read_whole_header

SUFFIX = ".h2o"
_NAME = re.compile(r"(weights-[0-9a-f]{12})-int([48])-(\d{1,9})\.h2o", re.ASCII)


def packed_folder() -> Path:
    """The folder of all packed files, which may not exist yet."""
    return platformdirs.user_cache_path("h2o-chat") / "packed"


def place_of(print_: str, bits: int) -> Path:
    """Path of the packed file of weights with this fingerprint, which may not exist yet."""
    return packed_folder() / f"{print_}-int{bits}-{VERSION}{SUFFIX}"


def home_of(folder: Path) -> str:
    """A model's folder, or its repository's folder in the cache: the same when its weights change."""
    folder = folder.resolve()
    return str(folder.parent.parent if folder.parent.name == "snapshots" else folder)


@dataclass(frozen=True)
class PackedFile:
    path: Path
    bytes: int
    fingerprint: str
    bits: int
    version: int
    header: PackedHeader | None
    """None: of another version, or damaged."""

    @property
    def home(self) -> str | None:
        """`home_of` the original model; None if the header cannot be read."""
        return self.header.model if self.header else None


def packed_files() -> list[PackedFile]:
    """All packed files, by name."""
    found = []
    for path in sorted(packed_folder().glob(f"*{SUFFIX}")):
        named = _NAME.fullmatch(path.name)
        if named is None or path.is_symlink():
            continue
        header = None
        try:
            size = path.stat().st_size
            header = read_whole_header(path)
        except FileNotFoundError:  # it has just been removed
            continue
        except (OSError, PackedError):
            pass
        found.append(PackedFile(path, size, named[1], int(named[2]), int(named[3]), header))
    return found


def packed_files_of(folder: Path) -> tuple[list[PackedFile], list[PackedFile]]:
    """(packed files of a model's weights, packed files of earlier weights in its folder)."""
    print_, home = fingerprint(folder), home_of(folder)
    mine = [one for one in packed_files() if one.fingerprint == print_ or one.home == home]
    now = [one for one in mine if one.fingerprint == print_ and one.version == VERSION]
    return now, [one for one in mine if one not in now]


def remove(path: Path) -> None:
    """Removes a packed file and its note; processes that have it open can go on reading.

    Raises:
        PackedError: it cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
        note_of(path).unlink(missing_ok=True)
    except OSError as error:
        raise PackedError(f"{path} cannot be removed: {error.strerror}.", "Look at its folder.") from error


def note_of(path: Path) -> Path:
    """The note that its checksums were verified, see `checked_files`."""
    return path.with_name(f"{path.name}.checked")
