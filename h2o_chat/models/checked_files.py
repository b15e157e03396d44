"""Notes that a file was checked: its size, time and inode of then, by which a change is noticed."""

import contextlib
import json
import os
from pathlib import Path


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
