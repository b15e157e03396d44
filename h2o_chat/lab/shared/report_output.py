"""How every `h2o-chat lab eval` opens its model, and reports on stdout: one JSON object, or a table."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ExitCode
from h2o_chat.base.progress import Tick, progress_bar

if TYPE_CHECKING:  # importing torch takes seconds
    from h2o_chat.models.load import Loaded

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


LEFT = ("policy", "recall", "peer", "was given")
"""Columns of words; all others are numbers."""


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "", caption: str = ""
) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title or None, caption=caption or None)
    for name in columns:
        table.add_column(name, justify="left" if name in LEFT else "right")
    for row in rows:
        table.add_row(*row)
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDTH).print(table)


def slots(budget: int | None) -> str:
    """Budget as tables name it; None is the full cache."""
    return "all" if budget is None else f"{budget:,}"


@contextmanager
def opened_model(settings: Settings, stage: str) -> Iterator[tuple["Loaded", Tick]]:
    """The model, and what shows the progress of measuring it on stderr, as `stage`."""
    from h2o_chat.native.native_model import open_model

    with progress_bar() as progress:
        yield open_model(settings, progress), partial(progress, stage)
