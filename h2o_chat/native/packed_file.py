"""Packed files: the folder of all, and the header of one, written and checked. No torch.

    8 bytes `MAGIC`, u32 version, u32 length of the JSON, u32 CRC-32 of the JSON, u32 0,
    JSON {fingerprint, model, frame, tensors: [[name, offset, bytes, CRC-32 of the data]]}, zeros to 64 bytes

Tensors and their places follow from the frame: a header with another table is refused, and so is a file of
another length. A damaged file therefore cannot cause a read beyond its end.
"""

import json
import os
import re
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from h2o_chat.base.errors import H2OChatError
from h2o_chat.base.system import read_at
from h2o_chat.models.file_identity import fingerprint
from h2o_chat.native.layout import ALIGNED, VERSION, data_bytes, layout, padded
from h2o_chat.native.model_frame import Frame, as_json, from_json

MAGIC = b"h2o-pack"
_FIXED = struct.Struct("<8sIIII")
MOST_JSON_BYTES = 16 << 20
SUFFIX = ".h2o"
_NAME = re.compile(r"(weights-[0-9a-f]{12})-int([48])-(\d{1,9})\.h2o", re.ASCII)


class PackedError(H2OChatError):
    """A packed file is missing, damaged, cannot be written, or is of another version or model."""

    code = "packed"


@dataclass(frozen=True)
class PackedHeader:
    fingerprint: str  # Fingerprint of the original weights
    model: str  # Their folder (`home_of`)
    frame: Frame
    checks: tuple[int, ...]  # CRC-32 of each tensor, in the order of `layout(frame)`

    def encoded(self) -> bytes:
        """The header as bytes, whose length does not depend on `checks`."""
        table = [
            [place.name, place.offset, place.bytes, f"{check:08x}"]
            for place, check in zip(layout(self.frame), self.checks, strict=True)
        ]
        about = {"fingerprint": self.fingerprint, "model": self.model}
        text = json.dumps(about | {"frame": as_json(self.frame), "tensors": table}).encode()
        raw = _FIXED.pack(MAGIC, VERSION, len(text), zlib.crc32(text), 0) + text
        return raw.ljust(padded(len(raw), ALIGNED), b"\0")


def header_in(path: Path, descriptor: int) -> tuple[PackedHeader, int]:
    """The header of an open file, and the offset of its tensors.

    Raises PackedError if it is no packed file, damaged, or of another version; OSError if it cannot be read.
    """
    size, fixed = os.fstat(descriptor).st_size, read_at(descriptor, _FIXED.size, 0)
    if len(fixed) < _FIXED.size or not fixed.startswith(MAGIC):
        raise damaged(path, "it does not begin as a packed file does")
    _, version, length, check, zero = _FIXED.unpack(fixed)
    if version != VERSION:
        raise PackedError(f"{path} has the layout {version}, this version reads {VERSION}.", "Pack it again.")
    if length > MOST_JSON_BYTES:
        raise damaged(path, f"its header would have {length:,} bytes")
    start = padded(_FIXED.size + length, ALIGNED)
    raw = read_at(descriptor, start, 0)
    text = raw[_FIXED.size : _FIXED.size + length]
    if len(raw) < start or zlib.crc32(text) != check:
        raise damaged(path, "its header has another checksum than it says")
    try:
        about = json.loads(text)
        if set(about) != {"fingerprint", "model", "frame", "tensors"}:
            raise ValueError("it lacks a field, or has one that is not known")
        frame = from_json(about["frame"])
        if not isinstance(about["fingerprint"], str) or not isinstance(about["model"], str):
            raise ValueError("it names no model")
        checks = tuple(int(one[3], 16) for one in about["tensors"])
        header = PackedHeader(about["fingerprint"], about["model"], frame, checks)
        if start + data_bytes(frame) != size:
            raise ValueError(f"{size:,} bytes, and its frame takes {start + data_bytes(frame):,}")
        if zero or header.encoded() != raw[:start]:
            raise ValueError("its table is not that of its frame")
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError) as error:
        raise damaged(path, str(error)) from error
    return header, start


def read_whole_header(path: Path) -> PackedHeader:
    """The header of a file; see `header_in`."""
    with path.open("rb") as file:
        return header_in(path, file.fileno())[0]


def damaged(path: Path, what: str) -> PackedError:
    return PackedError(f"{path} is damaged: {what}.", "It is packed again where the weights are at hand.")


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
    header: PackedHeader | None  # None: of another version, or damaged

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

    Raises PackedError if it cannot be removed.
    """
    try:
        path.unlink(missing_ok=True)
        note_of(path).unlink(missing_ok=True)
    except OSError as error:
        raise PackedError(f"{path} cannot be removed: {error.strerror}.", "Look at its folder.") from error


def note_of(path: Path) -> Path:
    """The note that its checksums were verified, see `file_identity`."""
    return path.with_name(f"{path.name}.checked")
