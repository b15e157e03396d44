"""Reads untrusted JSON objects as dataclasses: every field is checked to have its annotated type."""

import json
import math
from collections.abc import Callable
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

Reader = Callable[[Any, str], Any]
"""(JSON value, path of the field for errors) -> value of the field."""


def read(kind: type[Any], data: dict[str, Any], where: str) -> Any:
    """A dataclass from a JSON object; unknown keys are ignored.

    Args:
        where: name of the object, for errors.

    Raises:
        ValueError: a field is missing or of the wrong type; says which.
    """
    values = {}
    for name, reader in _readers(kind).items():
        if name in data:
            values[name] = reader(data[name], f"{where}.{name}")
    try:
        return kind(**values)
    except TypeError as error:  # Python names what is missing
        raise ValueError(f"{where}: {str(error).rpartition('()')[2].strip()}") from error


_READERS: dict[type[Any], dict[str, Reader]] = {}
"""The readers of each dataclass's fields, computed once: a recording has millions of lines."""


def _readers(kind: type[Any]) -> dict[str, Reader]:
    if kind not in _READERS:
        hints = get_type_hints(kind)
        _READERS[kind] = {one.name: _reader(hints[one.name]) for one in fields(kind)}
    return _READERS[kind]


def _reader(hint: Any) -> Reader:
    """The reader of an annotated type; supports the types that `events.py` uses and no others."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _one_of([_reader(part) for part in parts])
    if origin is Literal:
        return _choice(parts)
    if origin is list:
        return _list(_reader(parts[0]))
    if origin is tuple:
        return _row([_reader(part) for part in parts])
    if origin is dict:
        return _table(_reader(parts[1]))
    return _PLAIN.get(hint) or (lambda value, where: read(hint, _object(value, where), where))


def _wrong(value: Any, where: str, wanted: str) -> NoReturn:
    raise ValueError(f"{where} is {seen(value)} and not {wanted}")


def _text(value: Any, where: str) -> str:
    return value if isinstance(value, str) else _wrong(value, where, "a text")


def _whole(value: Any, where: str) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        _wrong(value, where, "a whole number of at most 64 bits")
    return value


def _number(value: Any, where: str) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is float:  # 1e999
        _wrong(value, where, "a number that can be held")
    return _whole(value, where)


def _null(value: Any, where: str) -> None:
    if value is not None:
        _wrong(value, where, "null")


def _object(value: Any, where: str) -> dict[str, Any]:
    return value if isinstance(value, dict) else _wrong(value, where, "an object")


def _truth(value: Any, where: str) -> bool:
    return value if isinstance(value, bool) else _wrong(value, where, "true or false")


_PLAIN: dict[Any, Reader] = {str: _text, int: _whole, float: _number, bool: _truth, NoneType: _null}


def _one_of(readers: list[Reader]) -> Reader:
    def read(value: Any, where: str) -> Any:
        wrong = ""
        for reader in readers:
            try:
                return reader(value, where)
            except ValueError as error:
                wrong = wrong or str(error)
        raise ValueError(wrong)

    return read


def _choice(known: tuple[Any, ...]) -> Reader:
    def read(value: Any, where: str) -> Any:
        if not isinstance(value, str) or value not in known:
            _wrong(value, where, f"one of {', '.join(known)}")
        return value

    return read


def _list(reader: Reader) -> Reader:
    def read(value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            _wrong(value, where, "a list")
        return [reader(one, where) for one in value]

    return read


def _row(readers: list[Reader]) -> Reader:
    def read(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) != len(readers):
            _wrong(value, where, f"a list of {len(readers)}")
        return tuple(reader(one, where) for reader, one in zip(readers, value, strict=True))

    return read


def _table(reader: Reader) -> Reader:
    def read(value: Any, where: str) -> dict[str, Any]:
        return {name: reader(one, f"{where}[{seen(name)}]") for name, one in _object(value, where).items()}

    return read


def seen(value: Any) -> str:
    """A value for an error message: short, with control characters escaped."""
    if isinstance(value, str):
        return ascii(value if len(value) <= 40 else value[:40] + "...")
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else f"a list of {len(value)}"
    if type(value) is int and abs(value) >= 2**63:
        return "a longer number"
    return json.dumps(value)
