"""How a changed file is noticed: a fingerprint of weights, and notes that a file was checked as it is.

A fingerprint stands in for the revision of a repository. A note holds a file's size, time and inode of then.
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import BinaryIO

from h2o_chat.models import gguf

SAMPLES = 256
SAMPLE_BYTES = 64 << 10
"""Number and size of the pieces that are read of a large file; a small one is read whole."""


def fingerprint(folder: Path) -> str:
    """`weights-` and 12 digits of a hash of the configuration (or GGUF header) and samples of the weights."""
    if folder.is_file():
        header = gguf.header_of(folder)
        digest = hashlib.sha256(f"gguf {header.size} ".encode())
        for part in header.parts:
            with part.open("rb") as file:
                digest.update(file.read(header.bytes if part == header.path else 0))
                _sample(digest, file, part.stat().st_size)
        return f"weights-{digest.hexdigest()[:12]}"
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode("utf-8", "surrogateescape"))
        with path.open("rb") as weights:
            _sample(digest, weights, size)
    return f"weights-{digest.hexdigest()[:12]}"


def _sample(digest: "hashlib._Hash", file: BinaryIO, size: int) -> None:
    for start in range(0, size, max(SAMPLE_BYTES, size // SAMPLES)):
        file.seek(start)
        digest.update(file.read(SAMPLE_BYTES))


def is_checked(note: Path, about: os.stat_result) -> bool:
    """Whether the note was made when the file was as it is now."""
    try:
        return bool(json.loads(note.read_bytes()) == _identity(about))
    except (OSError, ValueError, RecursionError):
        return False


def note_checked(note: Path, about: os.stat_result) -> None:
    """Makes the note; where that fails, the file is checked at each opening."""
    part = note.with_name(f"{note.name}.{os.getpid()}.part")
    with contextlib.suppress(OSError):
        try:
            note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.write_text(json.dumps(_identity(about)))
            note.unlink(missing_ok=True)  # replacing an existing file waits for the disk on some systems
            part.replace(note)
        finally:
            part.unlink(missing_ok=True)


def _identity(about: os.stat_result) -> dict[str, int]:
    return {"bytes": about.st_size, "mtime_ns": about.st_mtime_ns, "inode": about.st_ino}
