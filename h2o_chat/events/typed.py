"""Reads untrusted JSON objects as dataclasses: every field is checked to have its annotated type."""

import json
import math
from dataclasses import MISSING, fields
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_PLAIN = {str: "a text", int: "a whole number of at most 64 bits", bool: "true or false", NoneType: "null"}


def read(kind: type[Any], data: dict[str, Any], where: str) -> Any:
    """A dataclass from a JSON object; unknown keys are ignored.

    Args:
        where: name of the object, for errors.

    Raises:
        ValueError: a field is missing or of the wrong type; says which.
    """
    hints = _hints(kind)  # type: ignore[arg-type]  # mypy doubts that a type can be hashed
    values = {
        name: _value(hint, data[name], f"{where}.{name}") for name, hint in hints.items() if name in data
    }
    try:
        return kind(**values)
    except TypeError as error:
        plain = [one for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]
        missing = ", ".join(one.name for one in plain if one.name not in values)
        raise ValueError(f"{where} has no {missing}") from error


@lru_cache
def _hints(kind: Any) -> dict[str, tuple[Any, Any]]:
    """(type, its parameters) of each field: a recording has millions of lines."""
    hints = get_type_hints(kind)
    return {one.name: _taken_apart(hints[one.name]) for one in fields(kind)}


def _taken_apart(hint: Any) -> tuple[Any, Any]:
    """(`list`, the type of its items) of a list, say; (`str`, nothing) of a text."""
    origin, parts = get_origin(hint), get_args(hint)
    return origin or hint, parts if origin is Literal else tuple(map(_taken_apart, parts))


def _value(hint: Any, value: Any, where: str) -> Any:
    """The value of a field, of a type that `events.py` uses; ValueError if it is of another."""
    kind, parts = hint
    if kind is Any:
        return value
    wanted = _PLAIN.get(kind, "")
    if kind is int:
        if type(value) is int and -(2**63) <= value < 2**63:
            return value
    elif kind is float:
        if type(value) is not float:
            return _value((int, ()), value, where)
        if math.isfinite(value):
            return value
        wanted = "a number that can be held"  # 1e999
    elif kind in _PLAIN:
        if isinstance(value, kind):
            return value
    elif kind in (Union, UnionType):
        wrong = list[ValueError]()
        for part in parts:
            try:
                return _value(part, value, where)
            except ValueError as error:
                wrong.append(error)
        raise wrong[0]
    elif kind is Literal:
        if isinstance(value, str) and value in parts:
            return value
        wanted = f"one of {', '.join(parts)}"
    elif kind is list:
        if isinstance(value, list):
            return [_value(parts[0], one, where) for one in value]
        wanted = "a list"
    elif kind is tuple:
        if isinstance(value, list) and len(value) == len(parts):
            return tuple(_value(part, one, where) for part, one in zip(parts, value, strict=True))
        wanted = f"a list of {len(parts)}"
    elif isinstance(value, dict):
        if kind is not dict:
            return read(kind, value, where)
        return {name: _value(parts[1], one, f"{where}[{seen(name)}]") for name, one in value.items()}
    raise ValueError(f"{where} is {seen(value)} and not {wanted or 'an object'}")


def seen(value: Any) -> str:
    """A value for an error message: short, with control characters escaped."""
    if isinstance(value, str):
        return ascii(value if len(value) <= 40 else value[:40] + "...")
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if type(value) is int and abs(value) >= 2**63:
        return "a number of more than 64 bits"
    return json.dumps(value)
