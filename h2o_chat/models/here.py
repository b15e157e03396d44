"""The models on this machine, by the names that open them, those used before first. No torch, no network."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from h2o_chat.base.errors import H2OChatError, ModelError, name_of
from h2o_chat.models import ollama, smollm2
from h2o_chat.models.hub_cache import cache_folder, repositories
from h2o_chat.models.resolve import (
    BUNDLED,
    POCKET,
    LocalModel,
    SeveralFiles,
    files_used,
    gguf_files,
    look_up,
    named_among,
)
from h2o_chat.store import models_used


@dataclass(frozen=True)
class ModelHere:
    name: str  # The name that opens it
    bytes: int
    where: str


def models_here(used: Iterable[str] = ()) -> list[ModelHere]:
    """Each model once; those in `used`, names of earlier conversations, first, but for those that are gone;
    then GGUF files beside them.

    Raises UsageError if the user's configuration cannot be read.
    """
    known, found, places = dict[str, ModelHere](), dict[str, ModelHere](), list[tuple[Path, str]]()
    for place, one in _in_known_places():
        known.setdefault(os.path.realpath(place), one)
    for name in used:
        try:
            model = look_up(name)
        except H2OChatError:  # it was moved or removed since
            continue
        if isinstance(model, LocalModel):
            places.append((model.folder, name))
    places += [(file, str(file)) for file in files_used(place for place, _ in places)]
    for place, name in places:
        real = os.path.realpath(place)
        found.setdefault(real, known.get(real) or _at(place, _short(name)))
    partial = [
        ModelHere(one.repository, one.bytes, "fetched in part: h2o-chat models pull goes on")
        for one in repositories()
        if one.folder is None and not one.files
    ]
    return [*(found | {place: one for place, one in known.items() if place not in found}).values(), *partial]


def spelled_out(name: str, folder: Path) -> str:
    """The path of a GGUF file used before, or beside one, if (a part of) its name is meant; else the name.

    Raises ModelError if several of those have this name.
    """
    try:
        look_up(name)
    except SeveralFiles:  # said where it is opened
        return name
    except ModelError:
        return str(named_among(name, files_used(models_used(folder))) or name)
    return name


def _at(place: Path, name: str) -> ModelHere:
    return ModelHere(name, bytes_of(place), _short(str(place.parent)))


def _in_known_places() -> Iterator[tuple[Path, ModelHere]]:
    """(folder or file, how it is listed) of the models whose places are known without anybody's help."""
    files = gguf_files()
    names = Counter(file.name.lower() for file in files)
    for file in files:
        yield file, _at(file, file.name if names[file.name.lower()] == 1 else _short(str(file)))
    if smollm2.is_here():
        yield smollm2.place(), _at(smollm2.place(), smollm2.NAME)
    for one in repositories():
        if one.folder is not None:
            yield one.folder, ModelHere(one.repository, one.bytes, _short(str(cache_folder())))
        for file in one.files:  # one of several opens by its path
            name = one.repository if len(one.files) == 1 else _short(str(file))
            yield file, ModelHere(name, bytes_of(file), _short(str(cache_folder())))
    for kept in ollama.installed():
        if blob := kept.blob("model"):
            yield blob, ModelHere(kept.name, kept.bytes, "ollama's")
    if folder := next((one for one in BUNDLED if one.is_dir()), None):
        yield folder, ModelHere(POCKET, bytes_of(folder), "comes with the program")


def bytes_of(place: Path) -> int:
    """Size of a folder's files, or of a file with the other parts of its model."""
    files = iter([place]) if place.is_file() else place.iterdir()
    if "-00001-of-" in place.name:
        files = place.parent.glob(place.name.replace("-00001-of-", "-*-of-"))
    return sum(one.stat().st_size for one in files if one.is_file())


def _short(path: str) -> str:
    """A path with `~` for the user's own folder."""
    home = str(Path.home())
    return name_of(f"~{path.removeprefix(home)}" if path.startswith(f"{home}/") else path)
