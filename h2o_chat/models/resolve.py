"""Finds the model that a name means, and its folder on this machine. No torch: errors must come at once.

Never uses the network: a model that is not here is fetched by `hub.pull`.
"""

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from h2o_chat.base.config import config_file, user_aliases
from h2o_chat.base.errors import ModelError, name_of
from h2o_chat.models import gguf, ollama, smollm2
from h2o_chat.models.aliases import ALIASES
from h2o_chat.models.gguf_config import config_of, held_as
from h2o_chat.models.hub_cache import cache_folder, cached, repositories
from h2o_chat.models.safetensors_header import header_of

PACKAGE = Path(__file__).resolve().parents[1]
BUNDLED = (PACKAGE / "assets" / "pocket", PACKAGE.parent / "assets" / "pocket")
"""Folders of the bundled model in an installed wheel, and in a checkout."""
POCKET = "pocket"
"""Name of the bundled model."""

MOST_LAYERS = 10_000
"""Most layers that a configuration may have; the largest models have 130."""

_REPOSITORY = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}/[\w.-]{1,96}", re.ASCII)
"""org/name of a repository on the hub."""


@dataclass(frozen=True)
class LocalModel:
    """A model on this machine."""

    name: str
    """Name for people: a folder's or file's name, or org/name, with control characters escaped."""
    folder: Path
    """Folder of its files, or its GGUF file."""
    revision: str | None = None
    """Commit of a fetched repository; None for a local folder or file."""


@dataclass(frozen=True)
class HubModel:
    """A repository of the hub that is not on this machine; it may not exist."""

    repository: str


def look_up(name: str | None) -> LocalModel | HubModel:
    """Finds a model by name.

    Tried in this order: a model of ollama, a folder with config.json, a GGUF file, an alias, smollm2, pocket,
    org/name, the only cached repository of that name.

    Args:
        name: None is SmolLM2 if it is here, otherwise the bundled model, pocket.

    Raises:
        ModelError: nothing by that name; says where it was looked for, and similar names.
        UsageError: the user's configuration cannot be read.
    """
    if name is None:
        return LocalModel(smollm2.NAME, smollm2.place()) if smollm2.is_here() else _bundled()
    if name.startswith(ollama.PREFIX):
        return LocalModel(*ollama.find(name))
    folder, is_model = _folder(name)
    if is_model:
        return LocalModel(name_of(folder.resolve().name), folder)
    aliases = all_aliases()
    target = aliases.get(name.lower())
    if target is not None:
        return _place(target)
    if name.lower() == smollm2.NAME:
        return LocalModel(smollm2.NAME, smollm2.find())
    if name.lower() == POCKET:
        return _bundled()
    if folder.is_dir():
        raise ModelError(f"{name} is not a model folder: it has no config.json.", _what_is_there(folder))
    if folder.is_file():
        hint = "All that can be had: h2o-chat models"
        if folder.suffix == gguf.SUFFIX:
            hint = "Fetch it again."
        elif (folder.parent / "config.json").is_file():
            hint = f"Try its folder: {folder.parent}"
        raise ModelError(
            f"{name} is a file, and no GGUF file; other models are folders with config.json, a tokenizer"
            " and safetensors weights.",
            hint,
        )
    if _REPOSITORY.fullmatch(name) and (cached(name) or not _beside(folder)):
        return _place(name)
    matches = [] if "/" in name else _cached_matches(name)
    if len(matches) == 1:
        return _place(matches[0])
    raise _not_found(name, folder, aliases, matches)


def find(name: str | None) -> LocalModel:
    """Finds a model on this machine by name; see `look_up`.

    Raises:
        ModelError: nothing by that name, or it was not fetched yet.
    """
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
    """Names for shell completion."""
    known = [smollm2.NAME, POCKET, *all_aliases(), *_fetched(), *(one.name for one in ollama.installed())]
    return [name for name in known if name.lower().startswith(text.lower()) and name.isprintable()]


def read_config(folder: Path) -> dict[str, Any]:
    """The contents of `config.json`, or the equivalent of a GGUF file.

    Raises:
        ModelError: it cannot be read, or is no configuration of a model.
    """
    if folder.is_file():
        return config_of(gguf.header_of(folder))
    config = _read_json(folder / "config.json")
    kind, classes = config.get("model_type") or "", config.get("architectures") or []
    if (
        not isinstance(kind, str)
        or not isinstance(classes, list)
        or any(type(one) is not str for one in classes)
    ):
        raise ModelError(
            f"{folder / 'config.json'} is damaged: model_type or architectures is no name.",
            "Fetch the file again.",
        )
    if not kind:
        raise ModelError(
            f"{folder / 'config.json'} names no model_type, so it is not clear which model this is.",
            "Expected a folder as written by transformers' save_pretrained().",
        )
    _check_layers(config, folder / "config.json")
    return config


def _check_layers(config: dict[str, Any], file: Path) -> None:
    """Checks the number of layers before transformers makes a list of that length."""
    for name, value in config.items():
        if isinstance(value, dict):
            _check_layers(value, file)
        elif (
            isinstance(value, int) and value > MOST_LAYERS and re.search(r"(^|_)(n_?layers?|layers?)$", name)
        ):
            raise ModelError(f"{file} is damaged: {name} is {value:,}.", "Fetch the file again.")


@dataclass(frozen=True)
class StoredWeights:
    """A summary of the headers of the weight files."""

    parameters: int
    dtype: str
    """Type of most parameters: F32, F16, BF16 ...; of a GGUF file also Q4_0, Q4_K ..."""
    bytes: int
    """Size on the disk."""
    held_as: str = ""
    """Types in which the native step holds the matrices of a GGUF file (`gguf_config.held_as`)."""
    held_bytes: int = 0
    """Bytes that these take."""


def check_weights(folder: Path) -> StoredWeights:
    """Reads the headers of all safetensors files, or of a GGUF file.

    Raises:
        ModelError: there are none, a shard is missing, or a file is cut short or damaged.
    """
    by_dtype: dict[str, int] = {}
    stored, held = 0, ("", 0)
    if folder.is_file():
        header = gguf.header_of(folder)
        held = held_as(header)
        for one in header.tensors.values():
            by_dtype[one.kind_name] = by_dtype.get(one.kind_name, 0) + prod(one.shape)
            stored += one.bytes
    for path in [] if folder.is_file() else weight_files(folder):
        for tensor in header_of(path).values():
            by_dtype[tensor["dtype"]] = by_dtype.get(tensor["dtype"], 0) + prod(tensor["shape"])
            stored += tensor["data_offsets"][1] - tensor["data_offsets"][0]
    if not by_dtype:
        raise ModelError(f"The weight files in {folder} hold no tensors.", "Fetch them again.")
    most = max(by_dtype, key=lambda dtype: by_dtype[dtype])
    return StoredWeights(sum(by_dtype.values()), most, stored, *held)


def _bundled() -> LocalModel:
    for folder in BUNDLED:
        if (folder / "config.json").is_file():
            return LocalModel(POCKET, folder)
    raise ModelError(
        "No model is bundled with this version.",
        "Name one: --model FOLDER, org/name or a short name; h2o-chat models lists them.",
    )


def _folder(name: str) -> tuple[Path, bool]:
    """The path that a name means, and whether there is a model."""
    try:
        if "\0" in name:
            raise ValueError("there is a NUL in it")
        folder = Path(name).expanduser()
        return folder, gguf.is_gguf(folder) or (folder / "config.json").is_file()
    except (OSError, RuntimeError, ValueError) as error:  # too long; ~nobody
        what = error.strerror if isinstance(error, OSError) else str(error)
        shown = name if len(name) <= 60 else name[:60] + "…"
        raise ModelError(
            f"{shown!r} can be no model: {what}", "All that can be had: h2o-chat models"
        ) from error


def _place(target: str) -> LocalModel | HubModel:
    """The model that an alias or a repository's name means."""
    if target.startswith(ollama.PREFIX):
        return LocalModel(*ollama.find(target))
    folder, is_model = _folder(target)
    if is_model:
        return LocalModel(name_of(folder.resolve().name), folder)
    if not _REPOSITORY.fullmatch(target):
        raise ModelError(
            f"An alias leads to {target!r}, which is neither a model folder nor org/name.",
            f"Mend it in {config_file()}.",
        )
    model = cached(target)
    if model is None or model.folder is None:
        return HubModel(target)
    return LocalModel(target, model.folder, model.revision)


def _fetched() -> list[str]:
    return [model.repository for model in repositories() if model.folder is not None]


def _cached_matches(name: str) -> list[str]:
    """Fetched repositories of that name in any organisation, or whose name contains it."""
    here = _fetched()
    same = [one for one in here if one.split("/")[-1].lower() == name.lower()]
    return same or [one for one in here if name.lower() in one.lower()]


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
        f"No model {name!r}: looked for a folder {folder.absolute()} with config.json, among the"
        f" {len(aliases)} short names, and in {cache_folder()}."
    )
    return ModelError(message, nearest(name, aliases) + "All that can be had: h2o-chat models")


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
    known = {one: one for one in (*aliases, smollm2.NAME, POCKET)} | here | folders
    near = difflib.get_close_matches(folder.name.lower(), known, n=3, cutoff=0.6) or _family(
        folder.name.lower(), known
    )
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
    """The letters at the beginning of a name."""
    return re.split("[^a-z]", name, maxsplit=1)[0]


def _what_is_there(folder: Path) -> str:
    if files := sorted(path.name for path in folder.glob(f"*{gguf.SUFFIX}")):
        return f"It holds GGUF files: name one, such as {folder / files[0]}."
    inside = sorted(path.parent.name for path in folder.glob("*/config.json"))
    if inside:
        return f"Models inside it: {', '.join(inside[:8])}."
    return "A model folder holds config.json, tokenizer.json and safetensors weights."


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a folder.

    Raises:
        ModelError: there are none, or one that the index names is missing.
    """
    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    if not index.is_file():
        other = sorted(path.name for kind in ("*.bin", "*.pt", "*.pth") for path in folder.glob(kind))
        found = f" ({', '.join(other[:3])} is pickle, which can run code and is not read)" if other else ""
        raise ModelError(
            f"{folder} has no safetensors weights{found}.",
            "Expected model.safetensors, or model.safetensors.index.json and its shards.",
        )
    shards = _read_json(index).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise ModelError(f"{index} has no weight_map.", "Fetch it again.")
    strange = [name for name in shards.values() if not is_inside(name)]
    if strange:
        raise ModelError(
            f"{index} names {str(strange[0])[:60]!r}, which is no file beside it.", "Fetch it again."
        )
    paths = [folder / shard for shard in sorted(set(shards.values()))]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise ModelError(
            f"{folder} lacks {len(missing)} of {len(paths)} weight files: {', '.join(missing[:3])}.",
            "The download is not complete: fetch the missing files.",
        )
    return paths


def is_inside(name: Any) -> bool:
    """Whether `name` is a relative path that stays inside its folder."""
    if not isinstance(name, str) or not 0 < len(name) < 200 or "\0" in name:
        return False
    return not (Path(name).is_absolute() or ".." in Path(name).parts)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}.", "Fetch the file again.") from error
    if not isinstance(data, dict):
        raise ModelError(f"{path} does not hold a JSON object.", "Fetch the file again.")
    return data
