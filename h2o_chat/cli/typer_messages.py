"""Messages of the command line in plain words: wrong values, and the help.

Typer passes on what its checks say to programmers: `Value error, 'foo' is not one of 'h2o', ...`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from h2o_chat.cli.help_text import write_help

KINDS = {"int_parsing": "a whole number", "int_from_float": "a whole number", "float_parsing": "a number"}
BOUNDS = {"greater_than_equal": ("ge", "at least"), "less_than_equal": ("le", "at most")}


class PlainGroup(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with wrong_values_in_words():
            return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_help(self, ctx, formatter)


class PlainCommand(TyperCommand):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with wrong_values_in_words():
            return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_help(self, ctx, formatter)


class PlainTyper(typer.Typer):
    """Typer, with these two."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"cls": PlainGroup} | options)

    def command(self, name: str | None = None, **options: Any) -> Callable[..., Any]:
        return super().command(name, **{"cls": PlainCommand} | options)


@contextmanager
def wrong_values_in_words() -> Iterator[None]:
    """Rewrites the error of a wrong value: the value, and what it may be."""
    try:
        yield
    except typer.BadParameter as error:
        error.message = in_words(error)
        raise


def in_words(error: typer.BadParameter) -> str:
    """The fault of a value, from the first finding of the check."""
    findings = getattr(error.__cause__, "errors", None)
    found = findings()[0] if findings else {}
    kind, value = found.get("type"), found.get("input")
    if kind in KINDS:
        return f"{value!r} is not {KINDS[kind]}."
    if kind in BOUNDS:
        bound, words = BOUNDS[kind]
        return f"{value} is out of range: {words} {found['ctx'][bound]:,}."
    return error.message.removeprefix("Value error, ")
