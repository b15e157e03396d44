"""A fingerprint of local weights, which stands in for the revision of a repository."""

import hashlib
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
