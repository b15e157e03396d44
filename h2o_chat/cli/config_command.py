"""`h2o-chat config`: shows the settings and their sources; edits `config.toml`, whose comments stay.

An unknown setting, and a file that is no TOML, raise UsageError.
"""

import json
import os
import sys
import tomllib
from typing import Annotated, Any

import typer

from h2o_chat.base import precedence
from h2o_chat.base.config import BY_THE_MAKERS, SCREEN_TOKENS, config_file, read_tables
from h2o_chat.base.errors import StoreError, UsageError, name_of
from h2o_chat.base.safe import safe_text
from h2o_chat.chat.files.export import write_file
from h2o_chat.cli.commands import ends, print_rows
from h2o_chat.cli.flags import MAKERS
from h2o_chat.cli.typer_messages import PlainTyper

app = PlainTyper(no_args_is_help=True, help="What is set, and where; set it for good.")


def _names_starting_with(text: str) -> list[str]:
    return [name for name in precedence.NAMES if name.startswith(text.replace("-", "_"))]


Name = Annotated[
    str, typer.Argument(help="As the flag: top-p or top_p.", autocompletion=_names_starting_with)
]


@app.command()
@ends
def path() -> None:
    """Print where the configuration stands, or would."""
    typer.echo(name_of(config_file()) if sys.stdout.isatty() else os.fsencode(config_file()))


@app.command()
@ends
def show(as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False) -> None:
    """List every setting, its value, and where that comes from. A flag comes before all of them."""
    settings = precedence.settings()
    if as_json:
        rows = [{"name": one.name, "value": one.value, "source": one.source} for one in settings]
        typer.echo(json.dumps({"file": str(config_file()), "settings": rows}))
        return
    table = [("NAME", "FROM", "VALUE")]
    for one in settings:
        from_where = precedence.variable(one.name) if one.source == "environment" else one.source
        value = _shown(one.value)
        if one.name == "max_tokens" and one.source == "default":
            value += f" (on the screen: {SCREEN_TOKENS})"
        if one.name in BY_THE_MAKERS and one.source == "default":
            value += f", {MAKERS}"
        table.append((one.name, from_where, value))
    print_rows(table)


@app.command("set", context_settings={"ignore_unknown_options": True})  # -1 is a value, if a wrong one
@ends
def set_(name: Name, value: Annotated[str, typer.Argument(help='Lists: ["a", "b"].')]) -> None:
    """Set a default for good, in config.toml."""
    key = _plain(name)
    checked = precedence.parse(key, value, key)
    change(key, list(checked) if isinstance(checked, tuple) else checked)
    typer.echo(f"{key} = {_shown(checked)}")
    if os.environ.get(precedence.variable(key)):
        sys.stderr.write(f"h2o-chat: {precedence.variable(key)} is set too, and comes before it\n")


@app.command()
@ends
def unset(name: Name) -> None:
    """Take a default out of config.toml again."""
    stands = _defaults(read_tables(config_file()))
    # Unknown settings can be removed too: nothing starts as long as they stand there.
    key = name if name in stands else _plain(name)
    if key in stands:
        change(key, None)
    else:
        sys.stderr.write(f"h2o-chat: {key} is not set in {name_of(config_file())}\n")


def _plain(name: str) -> str:
    """The name of a setting from `top_p`, `top-p` or `--top-p`."""
    plain = name.removeprefix("--").replace("-", "_").lower()
    precedence.known(plain, "Setting")
    return plain


def _shown(value: Any) -> str:
    return "not set" if value is None else safe_text(json.dumps(value, ensure_ascii=False))


def _defaults(tables: dict[str, Any]) -> dict[str, Any]:
    defaults = tables.get("defaults", {})
    if not isinstance(defaults, dict):
        raise UsageError(f"{config_file()}: defaults is no table.", "Write a line [defaults] instead.")
    return defaults


def change(key: str, value: Any) -> None:
    """Sets a default in the file, or removes it (None); all other bytes stay.

    Raises:
        UsageError: the file is no TOML, or is laid out in a way that cannot be edited.
        StoreError: it cannot be written.
    """
    path = config_file()
    tables = read_tables(path)
    text = path.read_bytes().decode("utf-8-sig") if path.exists() else ""
    wanted = tables | {"defaults": dict(_defaults(tables))}
    wanted["defaults"].pop(key, None)
    if value is not None:
        wanted["defaults"][key] = value
    try:
        changed = _edited(text, key, value)
        if tomllib.loads(changed) != wanted:
            raise ValueError("something else would change")
    except Exception as error:  # tomlkit's own, and what an unusual layout does to it
        raise UsageError(f"{path} cannot be edited ({error}).", "Change it by hand.") from error
    target = path.resolve()  # where it is a link, what it leads to is replaced
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error.strerror}.", "Look at its folder.") from error
    write_file(target, changed, force=True)


def _edited(text: str, key: str, value: Any) -> str:
    import tomlkit

    newline = "\r\n" if "\r\n" in text else "\n"
    if text and not text.endswith("\n"):
        text += newline
    document = tomlkit.parse(text)
    table: Any = document.get("defaults")
    if value is None:
        del table[key]
    elif table is not None and (key in table or not isinstance(table, tomlkit.items.Table)):
        table[key] = value
    else:
        if table is None:
            document["defaults"] = tomlkit.table()
            table = document["defaults"]
        item = tomlkit.item(value)
        item.trivia.trail = newline
        # append() would put it behind the comment that belongs to the next table.
        body = table.value.body
        last = max((index for index, (name, _) in enumerate(body) if name is not None), default=-1)
        body.insert(last + 1, (tomlkit.key(key), item))
    return tomlkit.dumps(document)
