"""The models on this machine, by the names that open them, those used before first. No torch, no network."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from h2o_chat.base.errors import H2OChatError, name_of
from h2o_chat.models import ollama, smollm2
from h2o_chat.models.hub_cache import cache_folder, repositories
from h2o_chat.models.resolve import BUNDLED, POCKET, LocalModel, gguf_files, look_up


@dataclass(frozen=True)
class ModelHere:
    name: str  # The name that opens it
    bytes: int
    where: str


def models_here(used: Iterable[str] = ()) -> list[ModelHere]:
    """Each model once; those in `used`, names of earlier conversations, first, but for those that are gone.

    Raises UsageError if the user's configuration cannot be read.
    """
    known, found = dict(_in_known_places()), dict[Path, ModelHere]()
    for name in used:
        try:
            model = look_up(name)
        except H2OChatError:  # it was moved or removed since
            continue
        if isinstance(model, LocalModel):
            own = ModelHere(_short(name), bytes_of(model.folder), _short(str(model.folder.parent)))
            found.setdefault(model.folder, known.get(model.folder, own))
    partial = [
        ModelHere(one.repository, one.bytes, "fetched in part: h2o-chat models pull goes on")
        for one in repositories()
        if one.folder is None
    ]
    return [*(found | {place: one for place, one in known.items() if place not in found}).values(), *partial]


def _in_known_places() -> Iterator[tuple[Path, ModelHere]]:
    """(folder or file, how it is listed) of the models whose places are known without anybody's help."""
    for file in gguf_files():
        yield file, ModelHere(file.name, bytes_of(file), _short(str(file.parent)))
    if smollm2.is_here():
        file = smollm2.place()
        yield file, ModelHere(smollm2.NAME, bytes_of(file), _short(str(file.parent)))
    for one in repositories():
        if one.folder is not None:
            yield one.folder, ModelHere(one.repository, one.bytes, _short(str(cache_folder())))
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
