"""`h2o-chat sessions`: lists, shows, finds, exports, imports, renames and removes stored conversations.

Text for a terminal is made harmless; in a file or a pipe it stays unchanged.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from h2o_chat.base.config import data_folder
from h2o_chat.base.errors import UsageError, name_of
from h2o_chat.base.precedence import typed
from h2o_chat.base.safe import safe_text
from h2o_chat.chat.files.export import FORMATS, file_name, mark_of, one_line, when, write_file
from h2o_chat.cli.commands import confirmed, ends, print_rows
from h2o_chat.cli.typer_messages import PlainTyper
from h2o_chat.store import Conversation, Store, conversation_ids

app = PlainTyper(
    no_args_is_help=True, help="Stored conversations: list, show, search, export, import, rename, remove."
)

Format = Literal["md", "json"]


def ids_starting_with(context: typer.Context, incomplete: str) -> list[str]:
    ids = conversation_ids(data_folder(context.params.get("data")), incomplete)
    return ids + [word for word in ("last",) if word.startswith(incomplete)]


Which = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="An id, the beginning of one, or last.", autocompletion=ids_starting_with
    ),
]
Data = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Where conversations are kept.", is_eager=True)
]
Json = Annotated[bool, typer.Option("--json", help="One JSON list on stdout.")]


@app.command("list")
@ends
def list_(
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="The newest only.", min=1)] = None,
    as_json: Json = False,
    data: Data = None,
) -> None:
    """List conversations, newest first. Tokens are - where they were imported and not yet read."""
    with opened(data) as store:
        found = store.list(limit)
    if as_json:
        _write(json.dumps([asdict(one) for one in found]) + "\n")
    elif not found:
        typer.echo(f"No conversation in {name_of(data_folder(data))} yet.", err=True)
    else:
        rows = [("id", "updated", "messages", "tokens", "model", "title")]
        for one in found:
            tokens = "-" if one.tokens is None else f"{one.tokens:,}"
            about = one_line(one.model), one_line(one.title)
            rows.append((one.id, when(one.updated), f"{one.messages:,}", tokens, *about))
        print_rows(rows, right=(2, 3), gives=4)


@app.command()
@ends
def show(which: Which, data: Data = None) -> None:
    """Print the active branch of a conversation."""
    with opened(data) as store:
        _show(store.whole(store.find(which)))


@app.command()
@ends
def export(
    which: Which,
    format: Annotated[
        Format | None, typer.Option(help="json holds all branches.", show_default="by the name, else md")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE|FOLDER", show_default="stdout")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    data: Data = None,
) -> None:
    """Write a conversation as Markdown or JSON."""
    suffix = format or ("" if output is None else output.suffix.lower().lstrip("."))
    suffix = suffix if suffix in FORMATS else "md"
    with opened(data) as store:
        conversation = store.whole(store.find(which))
    text = FORMATS[suffix](conversation)
    if output is None:
        _write(text)
        return
    path = output / file_name(conversation, suffix) if os.path.isdir(output) else output
    write_file(path, text, force)
    typer.echo(f"Wrote {name_of(path)}.", err=True)


@app.command("import")
@ends
def import_(file: Path, data: Data = None) -> None:
    """Store conversations from a file. It has an export (json), or messages as OpenAI writes them.

    Prints the new ids. All of a file is stored, or nothing.
    """
    from h2o_chat.chat.files.importer import read

    notes: list[str] = []
    conversations = read(file, notes)
    with opened(data) as store:
        ids = store.put(conversations)
    for note in notes:
        typer.echo(note, err=True)
    _write("".join(f"{one}\n" for one in ids))


@app.command()
@ends
def search(
    words: Annotated[list[str], typer.Argument(help="All of them; of the last, the beginning is enough.")],
    limit: Annotated[int, typer.Option("--limit", "-n", help="The newest only.", min=1)] = 50,
    as_json: Json = False,
    data: Data = None,
) -> None:
    """Find messages by words, newest first."""
    wanted = typed(" ".join(words), "What to look for")
    if not wanted.strip():
        raise UsageError("There is nothing to look for.", "Give a word, or the beginning of one.")
    with opened(data) as store:
        found = store.search(wanted, limit)
    if as_json:
        _write(json.dumps([asdict(one) for one in found]) + "\n")
    elif not found:
        typer.echo("Nothing was found.", err=True)
    else:
        rows = [(one.conversation, one_line(one.title), one.role, one_line(one.snippet)) for one in found]
        print_rows([("id", "title", "who", "what"), *rows], gives=1)


@app.command()
@ends
def rename(which: Which, title: str, data: Data = None) -> None:
    """Give a conversation another title."""
    with opened(data) as store:
        store.rename(store.find(which), typed(title, "The title"))


@app.command()
@ends
def rm(
    which: Which,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    data: Data = None,
) -> None:
    """Remove a conversation, with all its branches and saved memory."""
    with opened(data) as store:
        about = store.summary(store.find(which))
        name = f"{about.id} ({one_line(about.title) or 'no title'})"
        if not yes and not confirmed(f"Remove {name}, {about.messages} messages?"):
            typer.echo("Nothing was removed.", err=True)
            return
        store.remove(about.id)
    typer.echo(f"Removed {name}.", err=True)


@contextmanager
def opened(data: Path | None) -> Iterator[Store]:
    with closing(Store(data_folder(data))) as store:
        for note in store.notes:
            typer.echo(f"h2o-chat: {note.message}", err=True)
        yield store


def _show(conversation: Conversation) -> None:
    branch = conversation.branch()
    elsewhere = len(conversation.messages) - len(branch)
    facts = [conversation.id, one_line(conversation.model), when(conversation.created)]
    if elsewhere:
        facts.append(f"{elsewhere} messages of other branches: sessions export --format json")
    parts = [f"{one_line(conversation.title)}\n{', '.join(fact for fact in facts if fact)}"]
    for message in branch:
        mark = mark_of(message)
        parts.append(f"{message.role}:\n{message.text}" + (f"\n[{mark}]" if mark else ""))
    _write("\n\n".join(parts) + "\n")


def _write(text: str) -> None:
    """Writes to stdout; a terminal shows control characters and never obeys them."""
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    sys.stdout.write(safe_text(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()
