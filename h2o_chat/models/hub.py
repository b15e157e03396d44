"""Fetching a model from the Hugging Face hub, through huggingface_hub and into its cache.

Only safetensors weights, the tokenizer and the configuration are fetched. huggingface_hub 2.4 throws away
what it has of a file when a download ends early, and writes whatever a server sends. So every file goes
through one of our own (`blobs/HASH.incomplete`), by plain HTTP (never Xet): a later call goes on there, no
more is written than was listed, and with the right hash it becomes a blob like any other.
"""

import errno
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
from typing import Any, BinaryIO, NoReturn

from h2o_chat.base.errors import ModelError
from h2o_chat.models.cached import cache_folder, cached, is_commit
from h2o_chat.models.resolve import all_aliases, check_weights, is_inside, nearest

Fetched = Callable[[int, int], None]
"""(bytes that are here, bytes in all)"""

ANSWER_WITHIN_S = 5.0
"""The hub is asked once: a machine without a network has to say so soon."""

CHUNK_BYTES = 2**20
"""Between two reports; huggingface_hub takes ten times that, too much to stop or to tell a rate by."""

SPARE_BYTES = 256 * 2**20
"""What has to stay free on the disk."""

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
    """One file of a repository."""

    name: str
    size: int
    """Bytes, as it was listed: no more is written."""
    hash: str
    """What the cache calls it: SHA-256 of a large file, of a small one what git calls it."""


def pull(repository: str, report: Fetched, check: Callable[[Path], object]) -> Path:
    """Fetches what is missing of a model; returns its folder in the cache.

    Args:
        check: is handed the folder before the weights are fetched, and may refuse it.

    Raises:
        ModelError: no such model, gated, offline, without safetensors, or the disk is full; says what to do.
    """
    if is_offline():
        _offline(repository, "HF_HUB_OFFLINE is set")
    # It would first ask the hub for a list of the programs that may be using it, for up to 3 s.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)
    with _explained(repository), _asking():
        revision, files = _listing(repository)
        root = cache_folder() / f"models--{repository.replace('/', '--')}"
        small = [files[name] for name in _SMALL if name in files]
        _fetch_all(repository, revision, small, root, lambda *_: None)
        folder = root / "snapshots" / revision
        check(folder)
        weights = [files[name] for name in _weight_names(repository, folder, files)]
        _fetch_all(repository, revision, weights, root, report)
        _write_reference(root / "refs" / "main", revision)
    check_weights(folder)
    return folder


def stay_offline() -> None:
    """From here on huggingface_hub asks nobody but in `pull`: loading a model, it would ask for more."""
    from huggingface_hub import constants

    constants.HF_HUB_OFFLINE = True


@contextmanager
def _asking() -> Iterator[None]:
    """What was asked for on purpose may be fetched, whatever `stay_offline` has said."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, constants.DOWNLOAD_CHUNK_SIZE
    constants.HF_HUB_OFFLINE, constants.DOWNLOAD_CHUNK_SIZE = False, CHUNK_BYTES
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, constants.DOWNLOAD_CHUNK_SIZE = before


def is_offline() -> bool:
    """Whether the user keeps huggingface_hub off the network, by its own variables."""
    said = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return said.upper() in ("1", "ON", "YES", "TRUE")


def _listing(repository: str) -> tuple[str, dict[str, _File]]:
    """The commit of the main revision, and its files by name: one request, one attempt.

    Raises:
        ModelError: gated and no token, there is nothing to load, or what is listed can be no commit.
    """
    from huggingface_hub import HfApi, get_token

    info = HfApi().model_info(repository, files_metadata=True, timeout=ANSWER_WITHIN_S)
    if info.gated and not get_token():
        _gated(repository)
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
    """The weight files that make up the model: repositories hold the same weights in several formats.

    Raises:
        ModelError: there are none that can be read.
    """
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


def _fetch_all(repository: str, revision: str, files: list[_File], root: Path, report: Fetched) -> None:
    """Makes every file a blob of the cache, and a link to it in the folder of the revision.

    Raises:
        ModelError: the disk has no room for them, or what came is not what was listed.
    """
    blobs = root / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    here = {file.name: _have(blobs, file) for file in files}
    total, free = sum(file.size for file in files), shutil.disk_usage(blobs).free
    missing = total - sum(here.values())
    if missing and missing + SPARE_BYTES > free:
        raise ModelError(
            f"{repository} needs {missing / 1e9:.1f} GB more on the disk of {cache_folder()}, which has"
            f" {free / 1e9:.1f} GB free.",
            "Make room (h2o-chat models rm NAME), or set HF_HOME to a folder on another disk.",
        )
    report(total - missing, total)
    for file in files:

        def count(got: int, name: str = file.name) -> None:
            here[name] = got
            report(sum(here.values()), total)

        _fetch(repository, revision, file, blobs, count)
        _link(blobs / _hash(file), root / "snapshots" / revision / file.name)


def _have(blobs: Path, file: _File) -> int:
    """Bytes of a file that were fetched before."""
    for path in (blobs / _hash(file), _incomplete(blobs, file)):
        if path.is_file():
            return min(path.stat().st_size, file.size)
    return 0


def _hash(file: _File) -> str:
    """What the cache calls the file. It comes from a server and becomes a path: it has to be a hash."""
    if not _HASH.fullmatch(file.hash):
        raise ModelError(f"The hub names an impossible hash for {file.name}: {file.hash!r}.")
    return file.hash


def _incomplete(blobs: Path, file: _File) -> Path:
    return blobs / f"{_hash(file)}.incomplete"


def _fetch(repository: str, revision: str, file: _File, blobs: Path, here: Callable[[int], None]) -> None:
    """One file, from where an earlier call broke off."""
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
    """The hash of what came: SHA-256, or, of small files, what git calls the contents."""
    with path.open("rb") as whole:
        if len(file.hash) == 64:
            return hashlib.file_digest(whole, "sha256").hexdigest()
        return hashlib.sha1(
            b"blob %d\0" % path.stat().st_size + whole.read(), usedforsecurity=False
        ).hexdigest()


def _link(blob: Path, place: Path) -> None:
    """A file of a revision, as huggingface_hub makes it: a link; where there are none, the blob itself."""
    from huggingface_hub.file_download import _create_symlink

    if not place.exists():  # a link to a blob that was removed counts as none
        place.parent.mkdir(parents=True, exist_ok=True)
        _create_symlink(str(blob), str(place), new_blob=True)


def _write_reference(path: Path, revision: str) -> None:
    """From now on this is the main revision: all of it is here."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(revision)
    new.replace(path)


class _TooLarge(Exception):
    """A server sends more than it has listed."""


def _counting(out: BinaryIO, most: int, here: Callable[[int], None]) -> Any:
    """As much of a tqdm class as huggingface_hub uses; it tells how many bytes of the file are here.

    It is told of every piece before that is written: what would be too much is not written.

    Args:
        most: bytes of the file; beyond them `_TooLarge` is raised.
    """

    class Bar:
        def __init__(self, *_: Any, **__: Any) -> None:
            return None

        def update(self, n: int) -> None:
            if n < 0:  # it begins again, and has cut the file
                return
            if out.tell() + n > most:
                raise _TooLarge
            here(out.tell() + n)

        def __enter__(self) -> "Bar":
            return self

        def __exit__(self, *_: object) -> None:
            return None

    return Bar


@contextmanager
def _explained(repository: str) -> Iterator[None]:
    """Turns what huggingface_hub raises into what happened and what to do."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError:
        _gated(repository)
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"No model {repository!r} on the hub, or it is private and no token for it was found.",
            nearest(repository, all_aliases().values()) + f"A token is looked for in {_token_places()}.",
        ) from error
    except errors.HfHubHTTPError as error:
        raise _refused(repository, error) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, errors.HTTPError) as error:
        _offline(repository, f"the hub cannot be reached ({_one_line(error)})")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise ModelError(
                f"The disk of {cache_folder()} is full.",
                "What was fetched is kept. Make room, then call again: it goes on where it stopped.",
            ) from error
        raise ModelError(
            f"Fetching {repository} failed: {_one_line(error)}", "Call again: it goes on where it stopped."
        ) from error


def _refused(repository: str, error: Any) -> ModelError:
    """What an HTTP status means."""
    status = error.response.status_code
    if status == 429:
        after = error.response.headers.get("Retry-After")
        wait = f"in {after} seconds" if after else "in some minutes"
        return ModelError(
            f"The hub has had too many requests from here (429) and does not answer for {repository}.",
            f"Call again {wait}; what was fetched is kept. With a token the limits are wider.",
        )
    if status in (401, 403):
        return ModelError(
            f"The hub refuses {repository} ({status}): the token is not accepted for it.",
            f"Tokens are made at {_endpoint()}/settings/tokens, and looked for in {_token_places()}.",
        )
    return ModelError(
        f"The hub answers {status} for {repository}.", "Call again later; what was fetched is kept."
    )


def _gated(repository: str) -> NoReturn:
    from huggingface_hub import get_token

    found = "the token that was found has no access yet" if get_token() else "no token was found"
    raise ModelError(
        f"{repository} is gated: its licence has to be accepted first, and {found}.",
        f"Accept it at {_endpoint()}/{repository}, then give a token by `hf auth login`."
        f" It is looked for in {_token_places()}.",
    )


def _offline(repository: str, why: str) -> NoReturn:
    model = cached(repository)
    partly = f" It was fetched in part ({model.bytes / 1e9:.1f} GB)." if model else ""
    known = all_aliases().values()
    near = "" if repository in known else nearest(repository, known)
    raise ModelError(
        f"No model {repository!r} on this machine, and {why}.{partly}",
        f"{near}Looked for a folder of that name, and in {cache_folder()}."
        f" With a network: h2o-chat models pull {repository}",
    )


def _token_places() -> str:
    from huggingface_hub import constants

    return f"the variable HF_TOKEN and the file {constants.HF_TOKEN_PATH}"


def _endpoint() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
