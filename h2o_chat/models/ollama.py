"""Models of ollama on this machine: found by name, read in place, never changed. No torch.

    MODELS/manifests/HOST/NAMESPACE/MODEL/TAG   JSON: layers with mediaType, digest "sha256:HEX" and size
    MODELS/blobs/sha256-HEX                     a layer: the model in GGUF, its template, licence ...

MODELS is `$OLLAMA_MODELS`, or `~/.ollama/models` and then that of ollama's Linux service
(github.com/ollama/ollama, docs/faq.md). A name, a manifest or a file that cannot be used raises ModelError.
"""

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from h2o_chat.base.errors import ModelError
from h2o_chat.base.progress import Progress
from h2o_chat.models.file_identity import is_checked, note_checked

PREFIX = "ollama:"
"""Prefix of the names of these models."""

_HOST, _NAMESPACE, _TAG = "registry.ollama.ai", "library", "latest"
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}(?::\d{1,5})?", re.ASCII)
"""One part of a name; a host may have a port."""
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})", re.ASCII)
_BLOB = re.compile(r"sha256-([0-9a-f]{64})", re.ASCII)
_LAYER = "application/vnd.ollama.image."
_MOST_BYTES = 1 << 20
_MOST_MODELS = 10_000
_AT_ONCE_BYTES = 1 << 22


@dataclass(frozen=True)
class ManifestLayer:
    kind: str  # model, template, license, params, system, adapter, projector ...
    digest: str  # 64 hexadecimal digits
    bytes: int


@dataclass(frozen=True)
class OllamaModel:
    root: Path  # MODELS, where it is
    name: str  # Its name for `--model`: `ollama:llama3.2:1b`
    layers: tuple[ManifestLayer, ...]
    wrong: str = ""  # Why its manifest cannot be read; `layers` is empty then

    @property
    def bytes(self) -> int:
        return sum(layer.bytes for layer in self.layers)

    def blob(self, kind: str) -> Path | None:
        """The file of its first layer of a kind, if there is one."""
        found = next((layer for layer in self.layers if layer.kind == kind), None)
        return self.root / "blobs" / f"sha256-{found.digest}" if found else None


PLACES = ("~/.ollama/models", "/usr/share/ollama/.ollama/models")
"""MODELS of a user, and of ollama's Linux service."""


def models_folders() -> list[Path]:
    """The places of models, in the order in which they are looked for."""
    named = os.environ.get("OLLAMA_MODELS")
    return [Path(one).expanduser() for one in ([named] if named else PLACES)]


def _root_of(parts: tuple[str, ...]) -> Path:
    """The first place that holds a model's manifest; the first of all if none does."""
    roots = models_folders()
    there = (root for root in roots if os.path.isfile(root.joinpath("manifests", *parts)))
    return next(there, roots[0])


def find(name: str) -> tuple[str, Path]:
    """The name of a model, and its GGUF file, of `ollama:[HOST/][NAMESPACE/]MODEL[:TAG]`.

    Raises ModelError, with the existing names, if it is malformed, or the model is missing or cannot be read.
    """
    parts = _parts(name)
    root = _root_of(parts)
    manifest = root.joinpath("manifests", *parts)
    shown = _shown(parts)
    pull = f"ollama pull {shown.removeprefix(PREFIX)}"
    if not os.path.isfile(manifest):
        there = [one.name for one in installed()]
        what = f"There are: {', '.join(there[:8])}." if there else f"Fetch it: {pull}"
        raise ModelError(f"No model {shown!r}: there is no {manifest}.", what)
    found = OllamaModel(root, shown, _layers(manifest))
    if any(layer.kind == "adapter" for layer in found.layers):
        what = f"{shown} has an adapter beside its weights, which is not read."
        raise ModelError(what, "Use its base model.")
    blob = found.blob("model")
    if blob is None:
        raise ModelError(f"{manifest} names no model in GGUF.", f"Fetch it again: {pull}")
    if not blob.is_file():
        raise ModelError(f"{shown} is not whole: {blob} is missing.", f"Fetch it again: {pull}")
    return shown, blob


def params_of(name: str) -> tuple[Path, dict[str, Any]] | None:
    """(file, parameters such as temperature and stop) that come with a model; None if there are none."""
    parts = _parts(name)
    root = _root_of(parts)
    blob = OllamaModel(root, _shown(parts), _layers(root.joinpath("manifests", *parts))).blob("params")
    if blob is None:
        return None
    try:
        with blob.open("rb") as file:
            params = json.loads(file.read(_MOST_BYTES))
        if not isinstance(params, dict):
            raise ValueError("it is no JSON object")
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(
            f"{blob}, the parameters of {name}, cannot be read: {error}.",
            "Fetch the model again: ollama pull",
        ) from error
    return blob, params


def installed() -> list[OllamaModel]:
    """All models, sorted by name in each place, including those that cannot be read, with the reason."""
    found = dict[str, OllamaModel]()
    for root in models_folders():
        there = (root / "manifests").glob("*/*/*/*")
        for path in sorted(one for one in there if os.path.isfile(one))[:_MOST_MODELS]:
            parts = path.relative_to(root / "manifests").parts
            if not all(map(_PART.fullmatch, parts)) or (shown := _shown(parts)) in found:
                continue
            try:
                found[shown] = OllamaModel(root, shown, _layers(path))
            except ModelError as error:
                found[shown] = OllamaModel(root, shown, (), error.message)
    return list(found.values())


def licence_of(model: OllamaModel) -> str:
    """The first line of its licence; empty if there is none, or it cannot be read."""
    blob = model.blob("license")
    if blob is None or not blob.is_file():
        return ""
    try:
        with blob.open("rb") as file:
            lines = file.read(_MOST_BYTES).decode("utf-8", "replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in lines if line.strip()), "")


def is_blob(path: Path) -> bool:
    """Whether a file is a blob, whose name is the digest of its contents."""
    return path.parent.name == "blobs" and _BLOB.fullmatch(path.name) is not None


def check(path: Path, progress: Progress, *, again: bool = False) -> None:
    """Compares a blob with the digest in its name, which takes seconds, once; ignores other files.

    `progress` gets the stage "check". With `again` it is checked even if it was before.
    """
    note = platformdirs.user_cache_path("h2o-chat") / "ollama" / f"{path.name}.checked"
    if not is_blob(path) or (not again and is_checked(note, path.stat())):
        return
    digest, done = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            while raw := file.read(_AT_ONCE_BYTES):
                digest.update(raw)
                done += len(raw)
                progress("check", min(1.0, done / max(1, about.st_size)))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from error
    if path.name != f"sha256-{digest.hexdigest()}":
        raise ModelError(
            f"{path} is damaged: its SHA-256 is {digest.hexdigest()}.",
            "Fetch the model again: ollama pull NAME",
        )
    note_checked(note, about)


def _parts(name: str) -> tuple[str, str, str, str]:
    """Host, namespace, model and tag of a name."""
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


def _layers(manifest: Path) -> tuple[ManifestLayer, ...]:
    try:
        with manifest.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        layers = [_layer(one) for one in json.loads(raw[:_MOST_BYTES])["layers"]]
    except OSError as error:
        raise ModelError(f"{manifest} cannot be read: {error.strerror}.", "Check its permissions.") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ModelError(
            f"{manifest} is damaged: it is no manifest of a model ({str(error)[:100]}).",
            "Fetch the model again: ollama pull NAME",
        ) from error
    return tuple(layers)


def _layer(data: Any) -> ManifestLayer:
    kind, digest, size = data["mediaType"], _DIGEST.fullmatch(data["digest"]), data["size"]
    if not isinstance(kind, str) or digest is None or type(size) is not int or not 0 <= size < 2**50:
        raise ValueError("a layer without type, digest or size")
    return ManifestLayer(kind.removeprefix(_LAYER)[:60], digest[1], size)
