"""Tells the weights in a folder from others that lay there before, as a revision does for a repository."""

import hashlib
from pathlib import Path

SAMPLES = 256
SAMPLE_BYTES = 64 << 10
"""So many pieces of this size are read of a large file; a small one is read whole."""


def fingerprint(folder: Path) -> str:
    """`weights-` and 12 digits: a hash of the configuration and of the weights, or samples of them."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for file in sorted(folder.glob("*.safetensors")):
        size = file.stat().st_size
        digest.update(f"{file.name} {size} ".encode("utf-8", "surrogateescape"))
        with file.open("rb") as weights:
            for start in range(0, size, max(SAMPLE_BYTES, size // SAMPLES)):
                weights.seek(start)
                digest.update(weights.read(SAMPLE_BYTES))
    return f"weights-{digest.hexdigest()[:12]}"
