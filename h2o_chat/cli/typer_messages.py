"""Messages of the command line in plain words: wrong values, and the help.

Typer passes on what its checks say to programmers: `Value error, 'foo' is not one of 'h2o', ...`.
"""

from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from h2o_chat.base.errors import ExitCode, UsageError

KINDS = {"int_parsing": "a whole number", "int_from_float": "a whole number", "float_parsing": "a number"}
BOUNDS = {"greater_than_equal": ("ge", "at least"), "less_than_equal": ("le", "at most")}


class _Plain:
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and getattr(self, "no_args_is_help", False) and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)  # typer takes it for printed
            ctx.exit(ExitCode.USAGE)
        try:
            found: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        except typer.BadParameter as error:
            error.message = in_words(error)
            raise
        return found

    def format_help(self, ctx: Any, formatter: Any) -> None:
        write_help(self, ctx, formatter)


class PlainGroup(_Plain, TyperGroup): ...


class PlainCommand(_Plain, TyperCommand): ...


class PlainTyper(typer.Typer):
    """Typer, with these two."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"cls": PlainGroup} | options)

    def command(self, name: str | None = None, **options: Any) -> Callable[..., Any]:
        return super().command(name, **{"cls": PlainCommand} | options)


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


MODEL, MEMORY, ANSWER = "model", "memory", "answer"
"""Topics: the panels of shared options."""
SHARED = (MODEL, MEMORY, ANSWER)
COMPLETION = ("install_completion", "show_completion")
"""Options that are asked for once, and named in docs/USING.md."""


def write_help(command: Any, ctx: Any, formatter: Any) -> None:
    """Writes usage, purpose, the command's own options and its commands, without a blank line between."""
    formatter.write_usage(ctx.command_path, " ".join(command.collect_usage_pieces(ctx)))
    with formatter.indentation():
        formatter.write_text(command.help.split("\f")[0].replace("\n", " ") if command.help else "")
    params = [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]
    arguments = [one for one in params if one.param_type_name == "argument"]
    options = [one for one in params if one.param_type_name == "option" and one.name not in COMPLETION]
    topics = dict.fromkeys(_panel(one) for one in options if _panel(one) in SHARED)
    for heading, found in (("Arguments", arguments), ("Options", options)):
        rows = [_row(one, ctx) for one in found if _panel(one) not in SHARED]
        if rows:
            formatter.write(f"{heading}:\n")
            with formatter.indentation():
                formatter.write_dl(rows, col_max=26)
    names = command.list_commands(ctx) if hasattr(command, "list_commands") else []
    shown = [one for name in names if not (one := command.get_command(ctx, name)).hidden]
    if shown:
        formatter.write("Commands:\n")
        with formatter.indentation():
            formatter.write_dl([(one.name, one.get_short_help_str(66)) for one in shown])
    if topics:
        formatter.write(f"More options (-m, -b ...): h2o-chat help {'|'.join(map(str, topics))}\n")


def _panel(param: Any) -> str | None:
    return getattr(param, "rich_help_panel", None)


def _row(param: Any, ctx: Any) -> tuple[str, str]:
    """A line of help: the option's names with the kind of its value; its help with the default."""
    if param.param_type_name == "argument":
        return (param.metavar or param.name).upper(), param.help or ""
    names = ", ".join(sorted([*param.opts, *param.secondary_opts], key=len))
    kind, text = str(param.metavar or param.display_type_rich(ctx=ctx)).strip("<>"), param.help or ""
    if "|" in kind and len(kind) >= 16:
        kind, text = "NAME", f"{text} One of: {', '.join(kind.split('|'))}."
    elif not param.metavar and "|" not in kind:
        kind = "N" if "int" in kind or "float" in kind else "FILE" if "path" in kind.lower() else "TEXT"
    kind = "" if param.is_flag or param.count else kind
    shown = param.show_default if isinstance(param.show_default, str) else _default(param)
    return f"{names} {kind}".strip(), f"{text} [{shown}]" if shown else text


def _default(param: Any) -> str:
    default = param.default
    if param.is_flag or default is None or default == [] or default == "auto" or callable(default):
        return ""
    return f"{default:,}" if isinstance(default, int) else str(default)


def help_command(
    context: typer.Context,
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="model, memory, answer or a command.")
    ] = None,
) -> None:
    """The options that many commands share, by topic."""
    root: Any = context.find_root()
    formatter = root.make_formatter()
    if topic in SHARED:
        formatter.write(f"Options of {topic}:\n")
        found = [one for one in root.command.params if _panel(one) == topic]
        with formatter.indentation():
            formatter.write_dl([_row(one, root) for one in found], col_max=26)
    else:
        command = root.command if topic is None else root.command.commands.get(topic)
        if command is None:
            topics = ", ".join([*SHARED, *root.command.commands])
            raise UsageError(f"There is no help on {topic!r}.", f"One of: {topics}.")
        inner = root if topic is None else type(root)(command, info_name=topic, parent=root)
        write_help(command, inner, formatter)
    typer.echo(formatter.getvalue().rstrip("\n"))
