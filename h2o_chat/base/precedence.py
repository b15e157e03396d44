"""Sources of a setting's value: built in < `config.toml` < environment < command line. No torch.

Names are those of the shared flags: `top_p` is `--top-p`, `H2O_CHAT_TOP_P`, and `top_p` in `[defaults]`.
A value that cannot be used raises UsageError, which begins with the place (a file, a variable, `where`) and
says what is allowed.
"""

import difflib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from h2o_chat.base import config
from h2o_chat.base.config import Disk, Look, Sampling, Settings, config_file
from h2o_chat.base.errors import UsageError

TABLES = ("aliases", "defaults", "mcp")  # tables that a configuration file may have

Source = Literal["default", "config.toml", "environment"]

_PREFIX = "H2O_CHAT_"
_OWNER: dict[str, tuple[Callable[..., object], Field[Any]]] = {
    field.name: (owner, field)
    for owner in (Settings, Sampling, Look, Disk)
    for field in fields(owner)
    if field.name != "events_every"  # a flag of `run` only
}
_HINTS = {
    name: hint for owner in (Settings, Sampling, Look, Disk) for name, hint in get_type_hints(owner).items()
}
_WANTED = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple: 'a list of texts, like ["###", "User:"]',
}
_YES, _NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")

NAMES = tuple(_OWNER)  # what the environment and the file can set; `Look` and `Disk` have no flag


@dataclass(frozen=True)
class Setting:
    """The value of one setting if no flag is given."""

    name: str
    value: Any  # None if it is not set: then the model or its makers' recommendation decides
    source: Source


def settings() -> list[Setting]:
    """All settings, in the order of their fields."""
    file, environment = from_file(config_file()), from_environment()
    return [
        Setting(name, environment[name], "environment")
        if name in environment
        else Setting(name, file[name], "config.toml")
        if name in file
        else Setting(name, None if name in config.BY_THE_MAKERS else field.default, "default")
        for name, (_, field) in _OWNER.items()
    ]


def look() -> Look:
    return Look(**{name: value for name, value in below_flags().items() if name in ("theme", "quiet")})


def model_folders() -> list[Path]:
    """The user's folders of GGUF files."""
    return [Path(one).expanduser() for one in below_flags().get("model_folders", Disk.model_folders)]


def saved_memories_bytes() -> int:
    """Returns the most bytes that all saved memories together may take."""
    return int(below_flags().get("saved_memories_bytes", Disk.saved_memories_bytes))


def below_flags() -> dict[str, Any]:
    """Settings of `config.toml` and the environment, by name."""
    return from_file(config_file()) | from_environment()


def from_file(path: Path) -> dict[str, Any]:
    """The checked `[defaults]` of a configuration file."""
    tables = config.read_tables(path)
    for key in tables:
        if (plain := key.replace("-", "_")) in NAMES:
            raise UsageError(f"{path}: {plain} stands outside of [defaults].", "Move it below that line.")
        if key not in TABLES:
            raise UsageError(f"{path}: {_cut(key)!r} is not known.", _nearest(key, TABLES))
    defaults = tables.get("defaults", {})
    if not isinstance(defaults, dict):
        raise UsageError(f"{path}: defaults is {_seen(defaults)}.", "Write a table: [defaults]")
    for key in defaults:
        known(key, f"{path}: [defaults]")
    config.aliases_in(tables, path)
    config.servers_in(tables, path)
    return {key: check(key, value, f"{path}: [defaults] {key}") for key, value in defaults.items()}


def from_environment(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The checked environment variables, by name of the setting; an empty one counts as not set."""
    return {
        name: parse(name, environment[variable(name)], variable(name))
        for name in NAMES
        if environment.get(variable(name))
    }


def variable(name: str) -> str:
    return _PREFIX + name.upper()


def misspelt_variables() -> list[str]:
    """Variables that are probably misspelt settings, and what was meant; they may be another program's."""
    unknown = [name for name in os.environ if name.startswith(_PREFIX) and name not in map(variable, NAMES)]
    near = {name: difflib.get_close_matches(name, map(variable, NAMES), n=1, cutoff=0.85) for name in unknown}
    return [f"{name} is not a setting. Did you mean {found[0]}?" for name, found in near.items() if found]


def known(name: str, where: str) -> None:
    """Checks that a setting exists."""
    if name not in NAMES:
        raise UsageError(f"{where} {_cut(name)!r} is not known.", _nearest(name, NAMES))


def parse(name: str, text: str, where: str) -> Any:
    """The value of a setting from text of a variable or the command line."""
    return check(name, _value(_kind(name), typed(text, where)), where)


def typed(text: str, where: str) -> str:
    """Text of the command line or a variable in UTF-8, also if Python took it for ASCII (LC_ALL=C)."""
    if not any("\ud800" <= one <= "\udfff" for one in text):
        return text
    try:
        return os.fsencode(text).decode()
    except UnicodeError as error:
        raise UsageError(f"{where} is not UTF-8 text.") from error


def check(name: str, value: Any, where: str) -> Any:
    """Checks a value that TOML or `parse` gave, and returns it in the type of its setting."""
    kind = _kind(name)
    if type(value) is int and not -(2**63) <= value < 2**63:  # also: Python refuses to print the largest
        raise UsageError(f"{where} is a number of more than 64 bits.")
    if kind is float and type(value) is int:
        value = float(value)
    if kind is tuple and isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = tuple(value)
    if type(value) is not kind:
        raise UsageError(f"{where} is {_seen(value)}.", f"It must be {_WANTED[kind]}.")
    flag, (owner, _) = "--" + name.replace("_", "-"), _OWNER[name]
    try:
        owner(**{name: value})
    except UsageError as error:
        raise UsageError(where + error.message.removeprefix(flag), error.hint) from error
    return value


def _kind(name: str) -> type:
    """Type of a setting's value: bool, int, float, str (also for choices) or tuple."""
    hint = _HINTS[name]
    if get_origin(hint) is UnionType:
        hint = next(one for one in get_args(hint) if one is not NoneType)
    origin = get_origin(hint)
    return str if origin is Literal else origin or hint


def _value(kind: type, text: str) -> Any:
    """Converts text to `kind`; returns it unchanged if that fails, and `check` raises."""
    if kind is bool:
        word = text.strip().lower()
        return True if word in _YES else False if word in _NO else text
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            return text
    if kind is tuple:
        try:
            several = json.loads(text)
        except (ValueError, RecursionError):  # one text, which may well begin like a list: [INST]
            several = None
        return several if isinstance(several, list) else [text]
    return text


def _nearest(name: str, names: Iterable[str]) -> str:
    names = list(names)
    near = difflib.get_close_matches(name[:100].lower(), names, n=1)
    return f"Did you mean {near[0]}?" if near else f"One of: {', '.join(names)}."


def _seen(value: Any) -> str:
    """A value for an error message: cut, and on one line."""
    if isinstance(value, str):
        return repr(_cut(value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if type(value) is int and abs(value) >= 2**63:
        return "a number of more than 64 bits"
    return str(value)


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "…"
