"""Checks of single values in a request's body; what is wrong raises ApiError, which names the key."""

from collections.abc import Mapping
from typing import Any

from h2o_chat.serve.api_errors import wrong


def seen(value: Any) -> str:
    """A value for an error message, cut."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        value = value[:60]
    return ascii(value)[:60] if type(value) is not int or abs(value) < 2**63 else "a very long number"


def flag(body: Mapping[str, Any], key: str, usual: bool) -> bool:
    value = usual if body.get(key) is None else body[key]
    if not isinstance(value, bool):
        raise wrong(key, f"{key} is {seen(value)}. It must be true or false.")
    return value


def whole_number(body: Mapping[str, Any], key: str, usual: int, least: int, most: int) -> int:
    value = usual if body.get(key) is None else body[key]
    if type(value) is not int or not least <= value <= most:
        raise wrong(key, f"{key} is {seen(value)}. It must be a whole number from {least:,} to {most:,}.")
    return value


def list_of(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise wrong(where, f"{where} is {seen(value)}. It must be a list.")
    return value
