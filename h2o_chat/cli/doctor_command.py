"""`h2o-chat doctor`: prints the report, as tables or as JSON."""

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from h2o_chat.base.errors import ExitCode
from h2o_chat.cli.commands import ends
from h2o_chat.models.obtain import size

if TYPE_CHECKING:
    from h2o_chat.cli.doctor import DoctorReport


@ends
def doctor(as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False) -> ExitCode:
    """Tell what is here, what will run, what is wrong, and what to do about it."""
    from h2o_chat.cli.doctor import examine  # 20 ms, which help need not wait for

    report = examine()
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    if as_json:
        typer.echo(json.dumps({"ok": not report.prevents, **asdict(report)}))
    else:
        _print(report)
    return ExitCode.FAILED if report.prevents else ExitCode.OK


def _print(report: "DoctorReport") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from h2o_chat.base.safe import safe_text

    table = Table.grid(padding=(0, 2))
    for title, rows in report.sections.items():
        table.add_row(Text(_label(title), style="bold"))
        for name, value in rows.items():
            table.add_row(Text("  " + _label(name)), Text(safe_text(_cell(name, value)), overflow="fold"))
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)  # commands can be copied
    console.print(table, soft_wrap=False)
    for problem in sorted(report.problems, key=lambda one: not one.prevents):
        kind, colour = ("problem", "red") if problem.prevents else ("note", "yellow")
        console.print(Text.assemble("\n", (kind, colour), f": {safe_text(problem.what)}"))
        if problem.do:
            console.print(Text(f"  {safe_text(problem.do)}"))
    if not report.problems:
        console.print(Text("\nNothing is wrong.", style="green"))


def _label(name: str) -> str:
    return name.removesuffix("_bytes").replace("_", " ")


def _cell(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return size(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        head = [str(value[key]) for key in ("name", "path") if key in value]
        rest = [
            f"{_label(key)} {_cell(key, one)}" for key, one in value.items() if key not in ("name", "path")
        ]
        return ", ".join([*head, *rest]) or "nothing"
    if isinstance(value, list):
        return "\n".join(_cell("", one) for one in value) or "none"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
