"""Fetches a model from the Hugging Face hub, through huggingface_hub and into its cache.

Only safetensors weights, the tokenizer and the configuration are fetched. huggingface_hub 2.4 discards a file
whose download ends early, and writes whatever a server sends. Files are therefore downloaded here, by plain
HTTP (never Xet), into `blobs/HASH.incomplete`: a later call continues, no more is written than the listed
size, and a file with the right hash becomes a blob of the cache.
"""

import fnmatch
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from h2o_chat.base.errors import ModelError
from h2o_chat.models.hub_cache import cache_folder, is_commit, root_of
from h2o_chat.models.hub_errors import explained, gated, offline
from h2o_chat.models.model_files import check_weights, is_inside

Fetched = Callable[[int, int], None]
"""(bytes fetched, bytes in all)"""

Agree = Callable[[str, int, int], None]
"""(repository, bytes to fetch, bytes free on the disk): raises if the user does not agree."""

ANSWER_WITHIN_S = 5.0
"""Timeout of the only request for the listing: without a network the error must come soon."""

CHUNK_BYTES = 2**20
"""Bytes between two reports; with huggingface_hub's 10 MB, stopping and the rate would lag."""

SPARE_BYTES = 256 * 2**20
"""Bytes that must stay free on the disk."""

_SMALL = (
    *("config.json", "generation_config.json", "chat_template.jinja", "chat_template.json"),
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "spiece.model"),
    *("special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt"),
    "model.safetensors.index.json",
)
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class _File:
    name: str
    size: int
    """Listed size in bytes; no more is written."""
    hash: str
    """Its name in the cache: SHA-256 of a large file, git's blob hash of a small one."""


def agreed(*_: object) -> None:
    """The default of `agree`: always agrees."""


def pull(repository: str, report: Fetched, check: Callable[[Path], object], agree: Agree = agreed) -> Path:
    """Fetches the missing files of a model; returns its folder in the cache.

    Args:
        check: called with the folder before the weights are fetched; may refuse it.
        agree: called before the weights are fetched; may refuse.

    Raises:
        ModelError: no such model, gated, offline, without safetensors, or the disk is full.
    """
    with _asking_for(repository):
        revision, files = _listing(repository)
        folder, weights = _weights(repository, revision, files, check)
        root = root_of(repository)
        _fetch_all(repository, revision, weights, root, report, agree)
        main = root / "refs" / "main"
        main.parent.mkdir(parents=True, exist_ok=True)
        new = main.with_name(f"main.{os.getpid()}")
        new.write_text(revision)
        new.replace(main)  # once all of it is here
    check_weights(folder)
    return folder


def ask(repository: str, agree: Agree, check: Callable[[Path], object] = agreed) -> None:
    """Calls `check` and `agree` as `pull` would, without fetching weights.

    Raises:
        ModelError: see `pull`.
    """
    with _asking_for(repository):
        revision, files = _listing(repository)
        _, weights = _weights(repository, revision, files, check)
        _check_room(repository, weights, root_of(repository), agree)


def _weights(
    repository: str, revision: str, files: dict[str, "_File"], check: Callable[[Path], object]
) -> tuple[Path, list["_File"]]:
    """Fetches the small files of a revision; returns its folder and the list of its weight files."""
    root = root_of(repository)
    small = [files[name] for name in _SMALL if name in files]
    _fetch_all(repository, revision, small, root, lambda *_: None, agreed)
    folder = root / "snapshots" / revision
    check(folder)
    return folder, [files[name] for name in _weight_names(repository, folder, files)]


@contextmanager
def _asking_for(repository: str) -> Iterator[None]:
    """Allows requests to the hub inside, in spite of `stay_offline`, and translates their errors."""
    if is_offline():
        offline(repository, "HF_HUB_OFFLINE is set")
    # Telemetry would first ask the hub for a list of programs, for up to 3 s.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, constants.DOWNLOAD_CHUNK_SIZE
    constants.HF_HUB_OFFLINE, constants.DOWNLOAD_CHUNK_SIZE = False, CHUNK_BYTES
    try:
        with explained(repository):
            yield
    finally:
        constants.HF_HUB_OFFLINE, constants.DOWNLOAD_CHUNK_SIZE = before


def stay_offline() -> None:
    """Forbids huggingface_hub all requests outside of `pull`: loading a model would make some."""
    from huggingface_hub import constants

    constants.HF_HUB_OFFLINE = True


def is_offline() -> bool:
    """Whether the user's environment variables forbid huggingface_hub the network."""
    said = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return said.upper() in ("1", "ON", "YES", "TRUE")


def _listing(repository: str) -> tuple[str, dict[str, _File]]:
    """The commit of the main revision, and its files by name: one request, one attempt."""
    from huggingface_hub import HfApi, get_token

    info = HfApi().model_info(repository, files_metadata=True, timeout=ANSWER_WITHIN_S)
    if info.gated and not get_token():
        gated(repository)
    if info.sha is None or not is_commit(info.sha):  # it comes from a server and becomes a path
        raise ModelError(f"The hub names an impossible commit of {repository}: {info.sha!r}.")
    files = {
        file.rfilename: _File(
            file.rfilename, max(file.size or 0, 0), str(file.lfs.sha256 if file.lfs else file.blob_id)
        )
        for file in info.siblings or []
    }
    if "config.json" not in files:
        raise ModelError(f"{repository} has no config.json, so it is not a model for transformers.")
    return info.sha, files


def _weight_names(repository: str, folder: Path, files: dict[str, _File]) -> list[str]:
    """The safetensors files of the model; repositories may have the same weights in several formats."""
    if "model.safetensors" in files:
        return ["model.safetensors"]
    if "model.safetensors.index.json" not in files:
        pickled = [name for name in files if any(fnmatch.fnmatch(name, kind) for kind in _PICKLED)]
        found = f" ({pickled[0]} is pickle, which can run code and is not read)" if pickled else ""
        raise ModelError(
            f"{repository} has no safetensors weights{found}.",
            "A copy of it may have model.safetensors.",
        )
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_text(encoding="utf-8"))
        names = sorted(set(index["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"The index of weights of {repository} is damaged: {error}.") from error
    missing = [name for name in names if name not in files or not is_inside(name)]
    if missing or not names:
        raise ModelError(f"{repository} lacks weights that its index names: {', '.join(missing[:3])}.")
    return names


def _check_room(repository: str, files: list[_File], root: Path, agree: Agree) -> dict[str, int]:
    """Checks that missing bytes fit on the disk and may be fetched; returns bytes already here by file."""
    blobs = root / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    here = {file.name: _have(blobs, file) for file in files}
    free = shutil.disk_usage(blobs).free
    missing = sum(file.size for file in files) - sum(here.values())
    if missing and missing + SPARE_BYTES > free:
        raise ModelError(
            f"{repository} needs {missing / 1e9:.1f} GB more on the disk of {cache_folder()}, which has"
            f" {free / 1e9:.1f} GB free.",
            "Make room (h2o-chat models rm NAME), or set HF_HOME to a folder on another disk.",
        )
    agree(repository, missing, free)
    return here


def _fetch_all(
    repository: str, revision: str, files: list[_File], root: Path, report: Fetched, agree: Agree
) -> None:
    """Fetches files as blobs of the cache, with links to them in the folder of the revision."""
    here = _check_room(repository, files, root, agree)
    blobs, total = root / "blobs", sum(file.size for file in files)
    report(sum(here.values()), total)
    for file in files:

        def count(got: int, name: str = file.name) -> None:
            here[name] = got
            report(sum(here.values()), total)

        _fetch(repository, revision, file, blobs, count)
        _link(blobs / _hash(file), root / "snapshots" / revision / file.name)


def _have(blobs: Path, file: _File) -> int:
    """Bytes of a file that are here already."""
    for path in (blobs / _hash(file), _incomplete(blobs, file)):
        if path.is_file():
            return min(path.stat().st_size, file.size)
    return 0


def _hash(file: _File) -> str:
    """The file's name in the cache, checked to be a hash, since it comes from a server."""
    if not _HASH.fullmatch(file.hash):
        raise ModelError(f"The hub names an impossible hash for {file.name}: {file.hash!r}.")
    return file.hash


def _incomplete(blobs: Path, file: _File) -> Path:
    return blobs / f"{_hash(file)}.incomplete"


def _fetch(repository: str, revision: str, file: _File, blobs: Path, here: Callable[[int], None]) -> None:
    """Fetches one file, continuing an earlier download."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import WeakFileLock, build_hf_headers

    part = _incomplete(blobs, file)
    lock = cache_folder() / ".locks" / blobs.parent.name / f"{_hash(file)}.lock"  # huggingface_hub's own
    lock.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        if (blobs / _hash(file)).exists():
            return
        with part.open("ab") as out:
            if out.tell() > file.size:
                out.seek(0)
                out.truncate()
            try:
                http_get(
                    hf_hub_url(repository, file.name, revision=revision),
                    out,
                    resume_size=out.tell(),
                    headers=build_hf_headers(),
                    expected_size=file.size,
                    tqdm_class=_counting(out, file.size, here),
                )
            except _TooLarge as error:
                part.unlink()
                raise ModelError(
                    f"{file.name} of {repository} is larger than the {file.size:,} bytes that the hub lists.",
                    "What came of it was thrown away. Fetch it again; if it stays so, do not trust it.",
                ) from error
        if _digest(part, file) != file.hash:
            part.unlink()
            raise ModelError(
                f"{file.name} of {repository} arrived damaged: its hash is not the one the hub lists.",
                "It was thrown away: fetch it again.",
            )
        part.rename(blobs / _hash(file))


def _digest(path: Path, file: _File) -> str:
    """Hash of a downloaded file, of the same kind as its listed one."""
    with path.open("rb") as whole:
        if len(file.hash) == 64:
            return hashlib.file_digest(whole, "sha256").hexdigest()
        return hashlib.sha1(
            b"blob %d\0" % path.stat().st_size + whole.read(), usedforsecurity=False
        ).hexdigest()


def _link(blob: Path, place: Path) -> None:
    """Links a blob into a revision's folder as huggingface_hub does, or moves it where links do not exist."""
    from huggingface_hub.file_download import _create_symlink

    if not place.exists():  # false also for a dangling link
        place.parent.mkdir(parents=True, exist_ok=True)
        _create_symlink(str(blob), str(place), new_blob=True)


class _TooLarge(Exception):
    """The server sends more than the listed size."""


def _counting(out: BinaryIO, most: int, here: Callable[[int], None]) -> Any:
    """A class with the part of tqdm's interface that huggingface_hub uses; reports bytes fetched to `here`.

    `update` is called before a piece is written, so that nothing is written beyond `most`.

    Args:
        most: size of the file in bytes; beyond it `_TooLarge` is raised.
    """

    class Bar:
        def __init__(self, *_: Any, **__: Any) -> None:
            return None

        def update(self, n: int) -> None:
            if n < 0:  # the download restarts, with the file cut
                return
            if out.tell() + n > most:
                raise _TooLarge
            here(out.tell() + n)

        def __enter__(self) -> "Bar":
            return self

        def __exit__(self, *_: object) -> None:
            return None

    return Bar
