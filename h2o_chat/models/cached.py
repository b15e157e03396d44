"""What the Hugging Face cache holds, read from its folders: 0.1 s, no import, no network.

Layout (huggingface.co/docs/huggingface_hub/guides/manage-cache): `models--ORG--NAME/refs/main` holds a
commit, `snapshots/COMMIT/` its files as links into `blobs/`.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "models--"


@dataclass(frozen=True)
class Cached:
    """A model repository in the cache, whole or in part."""

    repository: str
    root: Path
    """Its folder in the cache: all revisions and what they share."""
    folder: Path | None
    """The files of its main revision; None if they are not all there."""
    revision: str | None

    @property
    def bytes(self) -> int:
        """What it takes on the disk, all revisions and half-fetched files together."""
        return sum(path.stat().st_size for path in (self.root / "blobs").glob("*") if path.is_file())


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where huggingface_hub keeps what it fetches; the same variables decide."""
    home = environment.get("XDG_CACHE_HOME", "~/.cache")
    home = environment.get("HF_HOME", os.path.join(home, "huggingface"))
    cache = environment.get("HUGGINGFACE_HUB_CACHE", os.path.join(home, "hub"))
    return Path(os.path.expandvars(environment.get("HF_HUB_CACHE", cache))).expanduser()


def repositories() -> list[Cached]:
    """All models of the cache, by name."""
    return [_read(root) for root in sorted(cache_folder().glob(f"{_PREFIX}*")) if root.is_dir()]


def cached(repository: str) -> Cached | None:
    """One repository, if anything of it is in the cache."""
    root = cache_folder() / (_PREFIX + repository.replace("/", "--"))
    return _read(root) if root.is_dir() else None


def _read(root: Path) -> Cached:
    repository = root.name.removeprefix(_PREFIX).replace("--", "/")
    revision = _commit(root / "refs" / "main")
    folder = root / "snapshots" / revision if revision else None
    if folder is None or not (folder / "config.json").is_file() or not _has_weights(folder):
        return Cached(repository, root, None, None)
    return Cached(repository, root, folder, revision)


def _commit(file: Path) -> str | None:
    """The commit that a reference names, if it names one."""
    try:
        with file.open("rb") as reference:
            text = reference.read(100).decode(errors="replace").strip()
    except OSError:
        return None
    return text if is_commit(text) else None


def is_commit(text: object) -> bool:
    """Whether it names a commit, so that a folder may be called so."""
    return isinstance(text, str) and re.fullmatch(r"[0-9a-f]{40}", text) is not None


def _has_weights(folder: Path) -> bool:
    """Whether every weight file that its index names is there."""
    if (folder / "model.safetensors").is_file():
        return True
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
        shards = set(index["weight_map"].values())
        return bool(shards) and all((folder / str(shard)).is_file() for shard in shards)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False  # no index, or a damaged one: it has to be fetched again
