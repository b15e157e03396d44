"""Models that ollama keeps on this machine: found by name, read where they lie, never changed. No torch.

    MODELS/manifests/HOST/NAMESPACE/MODEL/TAG   JSON: layers with mediaType, digest "sha256:HEX" and size
    MODELS/blobs/sha256-HEX                     what a layer is: the model in GGUF, its template, licence ...

MODELS is `$OLLAMA_MODELS`, or `~/.ollama/models` (github.com/ollama/ollama, docs/faq.md).
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from h2o_chat.base.errors import ModelError
from h2o_chat.base.progress import Progress

PREFIX = "ollama:"
"""How names of these models begin."""
STAGE = "check"

_HOST, _NAMESPACE, _TAG = "registry.ollama.ai", "library", "latest"
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}(?::\d{1,5})?", re.ASCII)
"""Of a name; a host may have a port."""
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)
_BLOB = re.compile(r"sha256-([0-9a-f]{64})", re.ASCII)
_LAYER = "application/vnd.ollama.image."
_MOST_MANIFEST_BYTES = 1 << 20
_MOST_TEXT_BYTES = 1 << 20
_MOST_MODELS = 10_000
_AT_ONCE_BYTES = 1 << 22


@dataclass(frozen=True)
class Layer:
    """A layer of a manifest."""

    kind: str
    """model, template, license, params, system, adapter, projector ..."""
    digest: str
    """64 hexadecimal digits."""
    bytes: int


@dataclass(frozen=True)
class Kept:
    """A model in the store."""

    name: str
    """By which it is opened: `ollama:llama3.2:1b`."""
    layers: tuple[Layer, ...]
    wrong: str = ""
    """Why its manifest cannot be read; then there are no layers."""

    @property
    def bytes(self) -> int:
        return sum(layer.bytes for layer in self.layers)

    def blob(self, kind: str) -> Path | None:
        """The file of its first layer of a kind, where there is one."""
        found = next((layer for layer in self.layers if layer.kind == kind), None)
        return blob_of(found.digest) if found else None


def models_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where ollama keeps its models."""
    return Path(environment.get("OLLAMA_MODELS") or "~/.ollama/models").expanduser()


def blob_of(digest: str) -> Path:
    """The file with these digits."""
    return models_folder() / "blobs" / f"sha256-{digest}"


def find(name: str) -> tuple[str, Path]:
    """The name of a model, and its GGUF file.

    Args:
        name: `ollama:[HOST/][NAMESPACE/]MODEL[:TAG]`.

    Raises:
        ModelError: it can be no name, is not there, or cannot be read; says what is there.
    """
    parts = _parts(name)
    manifest = models_folder().joinpath("manifests", *parts)
    shown = _shown(parts)
    if not manifest.is_file():
        there = [one.name for one in kept()]
        what = (
            f"There are: {', '.join(there[:8])}."
            if there
            else f"Fetch it: ollama pull {shown[len(PREFIX) :]}"
        )
        raise ModelError(f"No model {shown!r}: there is no {manifest}.", what)
    found = Kept(shown, _layers(manifest))
    if any(layer.kind == "adapter" for layer in found.layers):
        raise ModelError(
            f"{shown} has an adapter beside its weights, which is not read.", "Use its base model."
        )
    blob = found.blob("model")
    if blob is None:
        raise ModelError(
            f"{manifest} names no model in GGUF.", f"Fetch it again: ollama pull {shown[len(PREFIX) :]}"
        )
    if not blob.is_file():
        raise ModelError(
            f"{shown} is not whole: {blob} is missing.", f"Fetch it again: ollama pull {shown[len(PREFIX) :]}"
        )
    return shown, blob


def params_of(name: str) -> tuple[Path, dict[str, Any]] | None:
    """The parameters that a model of the store comes with (temperature, stop ...), and their file.

    Raises:
        ModelError: the model or the file cannot be read.
    """
    parts = _parts(name)
    blob = Kept(_shown(parts), _layers(models_folder().joinpath("manifests", *parts))).blob("params")
    if blob is None:
        return None
    try:
        with blob.open("rb") as file:
            params = json.loads(file.read(_MOST_TEXT_BYTES))
        if not isinstance(params, dict):
            raise ValueError("it is no JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"{blob}, the parameters of {name}, cannot be read: {error}.",
            "Fetch the model again: ollama pull",
        ) from error
    return blob, params


def kept() -> list[Kept]:
    """All models of the store, by name. What cannot be read is among them, with the reason."""
    root, found = models_folder() / "manifests", list[Kept]()
    for path in sorted(_files(root, 4))[:_MOST_MODELS]:
        parts = path.relative_to(root).parts
        if not all(map(_PART.fullmatch, parts)):
            continue
        try:
            found.append(Kept(_shown(parts), _layers(path)))
        except ModelError as error:
            found.append(Kept(_shown(parts), (), error.message))
    return found


def _files(folder: Path, deep: int) -> Iterator[Path]:
    """The files that lie so many folders deep; links to folders are not followed."""
    with contextlib.suppress(OSError), os.scandir(folder) as inside:
        for one in inside:
            if deep == 1 and one.is_file():
                yield Path(one.path)
            elif deep > 1 and one.is_dir(follow_symlinks=False):
                yield from _files(Path(one.path), deep - 1)


def text_of(blob: Path | None) -> str:
    """A layer that is text, such as a licence; nothing where it is not there or not text."""
    try:
        if blob is None or not blob.is_file() or blob.stat().st_size > _MOST_TEXT_BYTES:
            return ""
        return blob.read_text("utf-8", errors="replace")
    except OSError:
        return ""


def is_blob(path: Path) -> bool:
    """Whether a file is one of the store, whose name says what must be in it."""
    return path.parent.name == "blobs" and _BLOB.fullmatch(path.name) is not None


def check(path: Path, progress: Progress, *, again: bool = False) -> None:
    """Compares a file of the store with the digest that is its name: once, it takes seconds. Others pass.

    Size, time and inode of what was checked are noted in the cache folder of this program.

    Args:
        progress: gets the stage "check" while the file is read.
        again: check it in any case.

    Raises:
        ModelError: it is not what its name says, or cannot be read.
    """
    if not is_blob(path):
        return
    try:
        about = path.stat()
        identity = {"bytes": about.st_size, "mtime_ns": about.st_mtime_ns, "inode": about.st_ino}
        note = platformdirs.user_cache_path("h2o-chat") / "ollama" / f"{path.name}.checked"
        if not again and _noted(note) == identity:
            return
        digest, done = hashlib.sha256(), 0
        with path.open("rb") as file:
            while raw := file.read(_AT_ONCE_BYTES):
                digest.update(raw)
                done += len(raw)
                progress(STAGE, min(1.0, done / max(1, about.st_size)))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from error
    if path.name != f"sha256-{digest.hexdigest()}":
        raise ModelError(
            f"{path} is damaged: its SHA-256 is {digest.hexdigest()}.",
            "Fetch the model again: ollama pull NAME",
        )
    with contextlib.suppress(OSError):  # then it is checked at each start
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = note.with_name(f"{note.name}.{os.getpid()}.part")
        part.write_text(json.dumps(identity))
        part.replace(note)


def _noted(note: Path) -> Any:
    try:
        return json.loads(note.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def _parts(name: str) -> tuple[str, str, str, str]:
    """Host, namespace, model and tag of a name.

    Raises:
        ModelError: it is none.
    """
    where, _, model = name.removeprefix(PREFIX).rpartition("/")
    model, _, tag = model.partition(":")
    *host, namespace = where.split("/") if where else [_NAMESPACE]
    parts = (host[0] if host else _HOST, namespace, model, tag or _TAG)
    if len(host) > 1 or not all(map(_PART.fullmatch, parts)):
        raise ModelError(
            f"{name[:200]!r} can be no model of ollama.",
            "Expected: ollama:NAME[:TAG] or ollama:USER/NAME[:TAG]",
        )
    return parts


def _shown(parts: tuple[str, ...]) -> str:
    """The shortest name of a model."""
    host, namespace, model, tag = parts
    where = "" if (host, namespace) == (_HOST, _NAMESPACE) else f"{namespace}/"
    if host != _HOST:
        where = f"{host}/{namespace}/"
    return f"{PREFIX}{where}{model}" + ("" if tag == _TAG else f":{tag}")


def _layers(manifest: Path) -> tuple[Layer, ...]:
    """
    Raises:
        ModelError: it cannot be read, or is no manifest.
    """
    try:
        with manifest.open("rb") as file:
            raw = file.read(_MOST_MANIFEST_BYTES + 1)
        layers = [_layer(one) for one in json.loads(raw[:_MOST_MANIFEST_BYTES])["layers"]]
    except OSError as error:
        raise ModelError(f"{manifest} cannot be read: {error.strerror}.", "Check its permissions.") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ModelError(
            f"{manifest} is damaged: it is no manifest of a model ({str(error)[:100]}).",
            "Fetch the model again: ollama pull NAME",
        ) from error
    return tuple(layers)


def _layer(data: Any) -> Layer:
    """
    Raises:
        ValueError, TypeError, KeyError: this describes none.
    """
    kind, digest, size = data["mediaType"], _DIGEST.fullmatch(data["digest"]), data["size"]
    if not isinstance(kind, str) or digest is None or type(size) is not int or not 0 <= size < 2**50:
        raise ValueError("a layer without type, digest or size")
    return Layer(kind.removeprefix(_LAYER)[:60], digest[1], size)
