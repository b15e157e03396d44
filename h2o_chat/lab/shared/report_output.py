"""Reports on stdout, as one JSON object or as a table."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

from h2o_chat.base.errors import ExitCode

if TYPE_CHECKING:
    from rich.table import Table

Found = TypeVar("Found")

WIDTH = 200
"""Columns of a table where stdout is no terminal, which would say how many it has."""


def tell(found: Found, as_json: bool, show: Callable[[Found], None]) -> ExitCode:
    """Writes a report, a dataclass or a list of them, as JSON, or calls `show`."""
    if as_json:
        sys.stdout.write(json.dumps(found, default=asdict) + "\n")
    else:
        show(found)
    return ExitCode.OK


def print_tables(*tables: "Table") -> None:
    """Prints tables on stdout."""
    from rich.console import Console

    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDTH)
    for table in tables:
        console.print(table)


def slots(budget: int | None) -> str:
    """Budget as tables name it; None is the full cache."""
    return "all" if budget is None else f"{budget:,}"
