"""Models in the Hugging Face cache, read from its folders: 0.1 s, no network.

Layout (huggingface.co/docs/huggingface_hub/guides/manage-cache): `models--ORG--NAME/refs/main` holds a
commit, `snapshots/COMMIT/` its files as links into `blobs/`.
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from h2o_chat.base.errors import ModelError
from h2o_chat.models.gguf import SUFFIX, is_first
from h2o_chat.models.model_files import weight_files

_PREFIX = "models--"
_OF_PICTURES = "mmproj"
"""Begins the names of files that read pictures for a model, and are none."""


@dataclass(frozen=True)
class Cached:
    """A model repository in the cache, complete or in part."""

    repository: str
    root: Path  # Its folder in the cache, with all revisions
    folder: Path | None  # Folder of its main revision; None if files are missing
    revision: str | None
    files: tuple[Path, ...] = ()  # Without a folder: GGUF files; of a model in several parts the first

    @property
    def bytes(self) -> int:
        """Size on the disk: all revisions and partial files."""
        return sum(path.stat().st_size for path in (self.root / "blobs").glob("*") if path.is_file())


def cache_folder() -> Path:
    """huggingface_hub's cache folder, by the same environment variables."""
    home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("HF_HOME", os.path.join(home, "huggingface"))
    cache = os.environ.get("HUGGINGFACE_HUB_CACHE", os.path.join(home, "hub"))
    return Path(os.path.expandvars(os.environ.get("HF_HUB_CACHE", cache))).expanduser()


def repositories() -> list[Cached]:
    """All models of the cache, sorted by name."""
    return [_read(root) for root in sorted(cache_folder().glob(f"{_PREFIX}*")) if root.is_dir()]


def cached(repository: str) -> Cached | None:
    """One repository; None if no file of it is in the cache."""
    root = root_of(repository)
    return _read(root) if root.is_dir() else None


def root_of(repository: str) -> Path:
    """The folder of a repository, which need not exist."""
    return cache_folder() / (_PREFIX + repository.replace("/", "--"))


def _read(root: Path) -> Cached:
    repository = root.name.removeprefix(_PREFIX).replace("--", "/")
    revision = ""
    with suppress(OSError), (root / "refs" / "main").open("rb") as reference:
        revision = reference.read(100).decode(errors="replace").strip()
    folder = root / "snapshots" / revision
    if is_commit(revision) and (folder / "config.json").is_file():
        with suppress(ModelError):  # a weight file is missing, or the index is damaged
            weight_files(folder)
            return Cached(repository, root, folder, revision)
    there = sorted(folder.rglob(f"*{SUFFIX}")) if is_commit(revision) else []
    files = tuple(one for one in there if is_first(one) and not one.name.startswith(_OF_PICTURES))
    return Cached(repository, root, None, None, files)


def is_commit(text: object) -> bool:
    """Whether a text is a commit hash, and so safe as a folder's name."""
    return isinstance(text, str) and re.fullmatch(r"[0-9a-f]{40}", text) is not None
