"""Finds the model that a name means, and its folder on this machine. No torch: errors must come at once.

Never uses the network: a model that is not here is fetched by `hub.pull`.
"""

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from h2o_chat.base.config import config_file, user_aliases
from h2o_chat.base.errors import ModelError, name_of
from h2o_chat.base.precedence import model_folders
from h2o_chat.models import gguf, ollama, smollm2
from h2o_chat.models.aliases import ALIASES
from h2o_chat.models.hub_cache import cache_folder, cached, repositories

PACKAGE = Path(__file__).resolve().parents[1]
BUNDLED = (PACKAGE / "assets" / "pocket", PACKAGE.parent / "assets" / "pocket")
"""Folders of the bundled model in an installed wheel, and in a checkout."""
POCKET = "pocket"
"""Name of the bundled model."""

_REPOSITORY = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}/[\w.-]{1,96}", re.ASCII)
"""org/name of a repository on the hub."""


@dataclass(frozen=True)
class LocalModel:
    name: str  # Name for people: a folder's or file's name, or org/name, with control characters escaped
    folder: Path  # Folder of its files, or its GGUF file
    revision: str | None = None  # Commit of a fetched repository; None for a local folder or file


@dataclass(frozen=True)
class HubModel:
    """A repository of the hub that is not on this machine; it may not exist."""

    repository: str


class SeveralFiles(ModelError):
    """Several GGUF files have the name that was given."""


def look_up(name: str | None) -> LocalModel | HubModel:
    """Finds a model by name; None is SmolLM2 if it is here, otherwise the bundled model, pocket.

    Tried in this order: a model of ollama, a folder with config.json, a GGUF file, an alias, smollm2, pocket,
    a GGUF file in the user's folders, org/name, the only cached repository of that name.

    Raises:
        ModelError: nothing by that name; says where it was looked for, and similar names.
        UsageError: the user's configuration cannot be read.
    """
    if name is None:
        return LocalModel(smollm2.NAME, smollm2.place()) if smollm2.is_here() else _bundled()
    if model := _in_its_place(name):
        return model
    folder, aliases = Path(name).expanduser(), all_aliases()
    if (target := aliases.get(name.lower())) is not None:  # an empty one is refused
        return _place(target)
    if name.lower() == smollm2.NAME:
        return LocalModel(smollm2.NAME, smollm2.find())
    if name.lower() == POCKET:
        return _bundled()
    if (file := named_among(name, gguf_files() if "/" not in name else [])) is not None:
        return LocalModel(name_of(file.name), file)
    if folder.is_dir():
        raise ModelError(f"{name} is not a model folder: it has no config.json.", _what_is_there(folder))
    if folder.is_file():
        hint = "All that can be had: h2o-chat models list --hub"
        if folder.suffix == gguf.SUFFIX:
            hint = "Fetch it again."
        elif (folder.parent / "config.json").is_file():
            hint = f"Try its folder: {folder.parent}"
        raise ModelError(
            f"{name} is a file, and no GGUF file; other models are folders with config.json, a tokenizer"
            " and safetensors weights.",
            hint,
        )
    is_file = name.lower().endswith(gguf.SUFFIX) or _beside(folder)
    if _REPOSITORY.fullmatch(name) and (cached(name) or not is_file):
        return _place(name)
    here = [] if "/" in name else _fetched()
    matches = [one for one in here if one.split("/")[-1].lower() == name.lower()]
    matches = matches or [one for one in here if name.lower() in one.lower()]
    if len(matches) == 1:
        return _place(matches[0])
    raise _not_found(name, folder, aliases, matches)


def gguf_files() -> list[Path]:
    """The GGUF files in the user's folders and below them; of a model in several parts the first.

    A link keeps its name, as those of the hub's cache must, which lead to files named by their hashes.

    Raises UsageError if the user's configuration cannot be read.
    """
    files = [file for folder in model_folders() for file in sorted(folder.rglob(f"*{gguf.SUFFIX}"))]
    return list(dict.fromkeys(Path(os.path.abspath(file)) for file in files if gguf.is_first(file)))


def files_used(names: Iterable[str | Path]) -> list[Path]:
    """The GGUF files that these paths name, then those that lie beside them."""
    used = [Path(one) for one in names if str(one).endswith(gguf.SUFFIX) and os.path.isfile(one)]
    beside = [file for one in used for file in sorted(one.parent.glob(f"*{gguf.SUFFIX}"))]
    return list(dict.fromkeys([*used, *filter(gguf.is_first, beside)]))


def named_among(name: str, files: list[Path]) -> Path | None:
    """The file that a name means: the whole, or a part of it that only one file's name has.

    Raises SeveralFiles if several files have this name.
    """
    wanted = name.lower().removesuffix(gguf.SUFFIX)
    same = [file for file in files if file.name.lower().removesuffix(gguf.SUFFIX) == wanted]
    same = list({os.path.realpath(file): file for file in reversed(same)}.values())[::-1]
    if same:
        return _only(name, same)
    found = [file for file in files if wanted and wanted in file.name.lower()]
    return found[0] if len(found) == 1 else None


def _only(name: str, files: Sequence[Path]) -> Path:
    if len(files) == 1:
        return files[0]
    which = ", ".join(map(str, files[:8]))
    raise SeveralFiles(f"{name!r} could be {len(files)} files.", f"Say which: {which}.")


def find(name: str | None) -> LocalModel:
    """Finds a model on this machine by name; see `look_up`. Raises ModelError if it was not fetched yet."""
    model = look_up(name)
    if isinstance(model, HubModel):
        raise ModelError(
            f"No model {model.repository!r} on this machine: looked in {cache_folder()}.",
            f"Fetch it: h2o-chat models pull {model.repository}",
        )
    return model


def all_aliases() -> dict[str, str]:
    """Repository or folder by short name; the user's aliases override built-in ones."""
    return {alias.name: alias.repository for alias in ALIASES.values()} | user_aliases()


def names_starting_with(text: str) -> list[str]:
    known = [smollm2.NAME, POCKET, *(one.name for one in gguf_files()), *all_aliases(), *_fetched()]
    known += [one.name for one in ollama.installed()]
    return [name for name in known if name.lower().startswith(text.lower()) and name.isprintable()]


def _bundled() -> LocalModel:
    for folder in BUNDLED:
        if (folder / "config.json").is_file():
            return LocalModel(POCKET, folder)
    raise ModelError(
        "No model is bundled with this version.",
        "Name one: --model FOLDER, org/name or a short name; h2o-chat models lists them.",
    )


def _in_its_place(name: str) -> LocalModel | None:
    """The model of ollama, the folder or the GGUF file that a name spells out."""
    if name.startswith(ollama.PREFIX):
        return LocalModel(*ollama.find(name))
    try:
        if "\0" in name:
            raise ValueError("there is a NUL in it")
        folder = Path(name).expanduser()
        if gguf.is_gguf(folder) or (folder / "config.json").is_file():
            return LocalModel(name_of(os.path.basename(os.path.abspath(folder))), folder)
    except (OSError, RuntimeError, ValueError) as error:  # too long; ~nobody
        what = error.strerror if isinstance(error, OSError) else str(error)
        shown = name if len(name) <= 60 else name[:60] + "…"
        raise ModelError(
            f"{shown!r} can be no model: {what}", "All that can be had: h2o-chat models list --hub"
        ) from error
    return None


def _place(target: str) -> LocalModel | HubModel:
    """The model that an alias or a repository's name means."""
    if model := _in_its_place(target):
        return model
    if not _REPOSITORY.fullmatch(target):
        raise ModelError(
            f"An alias leads to {target!r}, which is neither a model folder nor org/name.",
            f"Mend it in {config_file()}.",
        )
    here = cached(target)
    if here is not None and here.files:
        return LocalModel(target, _only(target, here.files))
    if here is None or here.folder is None:
        return HubModel(target)
    return LocalModel(target, here.folder, here.revision)


def _fetched() -> list[str]:
    return [model.repository for model in repositories() if model.folder is not None or model.files]


def _not_found(name: str, folder: Path, aliases: dict[str, str], matches: list[str]) -> ModelError:
    if matches:
        return ModelError(
            f"{name!r} could be {len(matches)} of the models in {cache_folder()}.",
            f"Say which: {', '.join(matches[:8])}.",
        )
    if beside := _beside(folder):
        pull = (
            f" A repository is fetched by: h2o-chat models pull {name}" if _REPOSITORY.fullmatch(name) else ""
        )
        return ModelError(
            f"There is no file {folder.absolute()}.", f"Did you mean {' or '.join(beside)}?{pull}"
        )
    if name.lower().endswith(gguf.SUFFIX):
        return ModelError(f"There is no file {folder.absolute()}.", "Name a GGUF file that is there.")
    message = (
        f"No model {name!r}: looked for a GGUF file, or a folder with config.json, {folder.absolute()},"
        f" among the {len(aliases)} short names, and in {cache_folder()}."
    )
    return ModelError(message, nearest(name, aliases) + "All that can be had: h2o-chat models list --hub")


def _beside(path: Path) -> list[str]:
    """Up to three GGUF files beside a path with similar names."""
    found = {file.name.lower(): str(file) for file in path.parent.glob(f"*{gguf.SUFFIX}")}
    name = path.name.lower()
    near = difflib.get_close_matches(name, found, n=3, cutoff=0.7)
    near += difflib.get_close_matches(f"{name}{gguf.SUFFIX}", found, n=3, cutoff=0.8)
    return [found[one] for one in dict.fromkeys(near)]


def nearest(name: str, aliases: Iterable[str]) -> str:
    """A sentence with similar names and how to fetch one; empty if there are none."""
    folder = Path(name).expanduser()
    beside = folder.parent if folder.parent.is_dir() else Path()
    folders = {path.parent.name: str(path.parent) for path in beside.glob("*/config.json")}
    here = {one.split("/")[-1].lower(): one for one in _fetched()}
    here |= folders | {one: one for one in (smollm2.NAME, POCKET)}
    here |= {file.name.lower().removesuffix(gguf.SUFFIX): file.name for file in gguf_files()}
    known = {one: one for one in aliases} | here
    wanted = folder.name.lower()
    both = [difflib.get_close_matches(wanted, among, n=3, cutoff=0.6) for among in (here, known)]
    near = list(dict.fromkeys([*both[0], *both[1]]))[:3] or _family(wanted, known)  # what is here comes first
    if not near:
        return ""
    fetch = next((f" (fetch it: h2o-chat models pull {one})" for one in near[:1] if one in aliases), "")
    return f"Did you mean {' or '.join(known[one] for one in near)}?{fetch} "


def _family(name: str, known: Iterable[str]) -> list[str]:
    """Up to three models whose family has a similar name: those of qwen for `gwen`."""
    families: dict[str, list[str]] = {}
    for one in known:
        families.setdefault(_first_word(one), []).append(one)
    near = difflib.get_close_matches(_first_word(name), filter(None, families), n=1, cutoff=0.7)
    return families[near[0]][:3] if near else []


def _first_word(name: str) -> str:
    return re.split("[^a-z]", name, maxsplit=1)[0]


def _what_is_there(folder: Path) -> str:
    if files := sorted(path.name for path in folder.glob(f"*{gguf.SUFFIX}")):
        return f"It holds GGUF files: name one, such as {folder / files[0]}."
    if inside := sorted(path.parent.name for path in folder.glob("*/config.json")):
        return f"Models inside it: {', '.join(inside[:8])}."
    return "A model folder holds config.json, tokenizer.json and safetensors weights."
