"""A store laid out as ollama lays it out."""

import hashlib
import json
from pathlib import Path

LAYER = "application/vnd.ollama.image."


def keep(
    root: Path,
    model: Path,
    name: str = "tiny",
    tag: str = "latest",
    where: str = "registry.ollama.ai/library",
    **layers: str,
) -> Path:
    """Puts a GGUF file into a store, as `ollama create` does.

    Args:
        layers: more of them by kind: template, license, params ...

    Returns:
        The manifest.
    """
    raw = {"model": model.read_bytes()} | {kind: text.encode() for kind, text in layers.items()}
    found = [
        {"mediaType": LAYER + kind, "digest": _blob(root, data), "size": len(data)}
        for kind, data in raw.items()
    ]
    config = {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": _blob(root, b"{}")}
    manifest = root / "manifests" / where / name / tag
    manifest.parent.mkdir(parents=True, exist_ok=True)
    about = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": config | {"size": 2},
        "layers": found,
    }
    manifest.write_text(json.dumps(about))
    return manifest


def _blob(root: Path, data: bytes) -> str:
    digits = hashlib.sha256(data).hexdigest()
    (root / "blobs").mkdir(parents=True, exist_ok=True)
    (root / "blobs" / f"sha256-{digits}").write_bytes(data)
    return f"sha256:{digits}"
