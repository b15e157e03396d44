"""Fetches a model from the Hugging Face hub, through huggingface_hub and into its cache.

Only safetensors weights, the tokenizer and the configuration are fetched. huggingface_hub 2.4 discards a file
whose download ends early, and writes whatever a server sends. Files are therefore downloaded here, by plain
HTTP (never Xet), into `blobs/HASH.incomplete`: a later call continues, no more is written than the listed
size, and a file with the right hash becomes a blob of the cache.
"""

import hashlib
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from h2o_chat.base.errors import ModelError
from h2o_chat.models.hub_cache import cache_folder, is_commit, root_of
from h2o_chat.models.hub_errors import explained, gated, offline
from h2o_chat.models.model_files import check_weights, no_safetensors, shards_of

Fetched = Callable[[int, int], None]
"""(bytes fetched, bytes in all)"""

Agree = Callable[[str, int, int], None]
"""(repository, bytes to fetch, bytes free on the disk): raises if the user does not agree."""

ANSWER_WITHIN_S = 5.0
"""Timeout of the only request for the listing: without a network the error must come soon."""

CHUNK_BYTES = 2**18
"""Bytes between two reports."""
TRIES, PAUSE_S = 5, 1.0
"""Connections in a row that bring nothing, and the time between them, before a download gives up."""

SPARE_BYTES = 256 * 2**20
"""Bytes that must stay free on the disk."""

_SMALL = (
    *("config.json", "generation_config.json", "chat_template.jinja", "chat_template.json"),
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "spiece.model"),
    *("special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt"),
    "model.safetensors.index.json",
)
_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class _File:
    repository: str
    revision: str
    name: str
    size: int  # Listed size in bytes; no more is written
    hash: str  # Its name in the cache: SHA-256 of a large file, git's blob hash of a small one

    @property
    def blob(self) -> Path:
        """Its place in the cache. Raises ModelError if its hash, which comes from a server, may be a path."""
        if not _HASH.fullmatch(self.hash):
            raise ModelError(f"The hub names an impossible hash for {self.name}: {self.hash!r}.")
        return root_of(self.repository) / "blobs" / self.hash

    @property
    def part(self) -> Path:
        """The place of what was fetched of it, until all of it is here."""
        return self.blob.with_name(f"{self.hash}.incomplete")

    @property
    def fetched(self) -> int:
        """Bytes that are here already."""
        there = next((one for one in (self.blob, self.part) if one.is_file()), None)
        return min(there.stat().st_size, self.size) if there else 0


def agreed(*_: object) -> None:
    """The default of `agree`: always agrees."""


def pull(repository: str, report: Fetched, check: Callable[[Path], object], agree: Agree = agreed) -> Path:
    """Fetches the missing files of a model; returns its folder in the cache.

    Before the weights are fetched, `check` gets the folder and may refuse it; then `agree` may refuse.

    Raises ModelError if there is no such model, it is gated, without safetensors, or the disk is full.
    """
    root = root_of(repository)
    with _asking_for(repository):
        revision, weights = _prepare(repository, check, agree)
        here = {file.name: file.fetched for file in weights}
        total = sum(file.size for file in weights)
        report(sum(here.values()), total)
        for file in weights:

            def count(got: int, name: str = file.name) -> None:
                here[name] = got
                report(sum(here.values()), total)

            _fetch(file, count)
        main = root / "refs" / "main"
        main.parent.mkdir(parents=True, exist_ok=True)
        new = main.with_name(f"main.{os.getpid()}")
        new.write_text(revision)
        new.replace(main)  # once all of it is here
    folder = root / "snapshots" / revision
    check_weights(folder)
    return folder


def ask(repository: str, agree: Agree, check: Callable[[Path], object] = agreed) -> None:
    """Calls `check` and `agree` as `pull` would, without fetching weights; raises as `pull` does."""
    with _asking_for(repository):
        _prepare(repository, check, agree)


def _prepare(repository: str, check: Callable[[Path], object], agree: Agree) -> tuple[str, list["_File"]]:
    """Fetches the small files; returns the commit and the weights, which may be fetched and fit the disk."""
    revision, files = _listing(repository)
    root = root_of(repository)
    (root / "blobs").mkdir(parents=True, exist_ok=True)
    for file in [files[name] for name in _SMALL if name in files]:
        _fetch(file, agreed)
    folder = root / "snapshots" / revision
    check(folder)
    weights = [files[name] for name in _weight_names(repository, folder, files)]
    missing = sum(file.size - file.fetched for file in weights)
    free = shutil.disk_usage(root).free
    if missing and missing + SPARE_BYTES > free:
        raise ModelError(
            f"{repository} needs {missing / 1e9:.1f} GB more on the disk of {cache_folder()}, which has"
            f" {free / 1e9:.1f} GB free.",
            "Make room (h2o-chat models rm NAME), or set HF_HOME to a folder on another disk.",
        )
    agree(repository, missing, free)
    return revision, weights


@contextmanager
def _asking_for(repository: str) -> Iterator[None]:
    """Allows requests to the hub inside, in spite of `stay_offline`, and translates their errors."""
    if is_offline():
        offline(repository, "HF_HUB_OFFLINE is set")
    # Telemetry would first ask the hub for a list of programs, for up to 3 s.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)
    from huggingface_hub import constants

    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, False
    try:
        with explained(repository):
            yield
    finally:
        constants.HF_HUB_OFFLINE = before


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
        one.rfilename: _File(
            *(repository, info.sha, one.rfilename, max(one.size or 0, 0)),
            str(one.lfs.sha256 if one.lfs else one.blob_id),
        )
        for one in info.siblings or []
    }
    if "config.json" not in files:
        raise ModelError(f"{repository} has no config.json, so it is not a model for transformers.")
    return info.sha, files


def _weight_names(repository: str, folder: Path, files: dict[str, _File]) -> list[str]:
    """The safetensors files of the model; repositories may have the same weights in several formats."""
    if "model.safetensors" in files:
        return ["model.safetensors"]
    if "model.safetensors.index.json" not in files:
        raise no_safetensors(repository, files)
    names = shards_of(folder / "model.safetensors.index.json")
    if missing := [name for name in names if name not in files]:
        raise ModelError(f"{repository} lacks weights that its index names: {', '.join(missing[:3])}.")
    return names


def _fetch(file: _File, here: Callable[[int], None]) -> None:
    """Fetches one file, continuing an earlier download, and links it into the folder of its revision."""
    from huggingface_hub.file_download import _create_symlink
    from huggingface_hub.utils import WeakFileLock

    root, blob, part = root_of(file.repository), file.blob, file.part
    lock = cache_folder() / ".locks" / root.name / f"{file.hash}.lock"  # huggingface_hub's own
    lock.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        if not blob.exists():
            try:
                with part.open("ab") as out:
                    _append(file, out, here)
                if _digest(part, file) != file.hash:
                    raise ModelError(
                        f"{file.name} of {file.repository} arrived damaged: its hash is not the one that the"
                        " hub lists.",
                        "It was thrown away: fetch it again.",
                    )
            except ModelError:
                part.unlink()
                raise
            part.rename(blob)
    place = root / "snapshots" / file.revision / file.name
    if not place.exists():  # false also for a dangling link
        place.parent.mkdir(parents=True, exist_ok=True)
        _create_symlink(str(blob), str(place), new_blob=True)


def _append(file: _File, out: BinaryIO, here: Callable[[int], None]) -> None:
    """Appends what is missing of a file, no byte beyond its listed size; opens a broken connection again."""
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError, HTTPError
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_stream_backoff

    url = hf_hub_url(file.repository, file.name, revision=file.revision)
    timeout_s = constants.HF_HUB_DOWNLOAD_TIMEOUT
    if out.tell() > file.size:
        _empty(out)
    tries = 0
    while (begin := out.tell()) < file.size:
        headers = build_hf_headers() | ({"Range": f"bytes={begin}-"} if begin else {})
        wrong: Exception = OSError(f"{file.name} ends too soon")
        try:
            with http_stream_backoff(
                "GET", url, headers=headers, timeout=timeout_s, retry_on_exceptions=()
            ) as response:
                hf_raise_for_status(response)
                if response.status_code == 200:  # the whole, whatever was asked for
                    _empty(out)
                for piece in response.iter_bytes(CHUNK_BYTES):
                    if out.tell() + len(piece) > file.size:
                        raise ModelError(
                            f"{file.name} of {file.repository} is larger than the {file.size:,} bytes that"
                            " the hub lists.",
                            "It was thrown away. Fetch it again; if it stays so, do not trust it.",
                        )
                    out.write(piece)
                    here(out.tell())
        except HfHubHTTPError:
            raise
        except HTTPError as error:
            wrong = error
        tries = 0 if out.tell() > begin else tries + 1
        if tries == TRIES:
            raise wrong
        if tries:
            time.sleep(PAUSE_S)


def _empty(out: BinaryIO) -> None:
    out.seek(0)
    out.truncate()


def _digest(path: Path, file: _File) -> str:
    """Hash of a downloaded file, of the same kind as its listed one."""
    with path.open("rb") as whole:
        if len(file.hash) == 64:
            return hashlib.file_digest(whole, "sha256").hexdigest()
        return hashlib.sha1(
            b"blob %d\0" % path.stat().st_size + whole.read(), usedforsecurity=False
        ).hexdigest()
