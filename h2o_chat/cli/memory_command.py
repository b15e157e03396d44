"""`h2o-chat memory`: what is remembered for all conversations."""

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from h2o_chat.base.safe import safe_text
from h2o_chat.chat.files.export import when
from h2o_chat.cli.commands import ends
from h2o_chat.cli.sessions_command import Data, opened
from h2o_chat.cli.typer_messages import PlainTyper

app = PlainTyper(no_args_is_help=True, help="What is remembered for all conversations: list, add, edit, rm.")
Number = Annotated[int, typer.Argument(metavar="NUMBER", help="As list shows it.")]


@app.command("list")
@ends
def list_(data: Data = None) -> None:
    """List the facts: number, day, text."""
    with opened(data) as store:
        facts = store.facts.all()
    for fact in facts:
        typer.echo(f"{fact.number:>4}  {when(fact.created)}  {safe_text(fact.text)}")
    if not facts:
        typer.echo(
            "Nothing is remembered yet: /remember TEXT in a chat, or h2o-chat memory add TEXT", err=True
        )


@app.command()
@ends
def add(text: str, data: Data = None) -> None:
    """Remember a text in all conversations. A question that needs it brings it back."""
    with opened(data) as store:
        typer.echo(f"Remembered as {store.facts.add(text).number}.")


@app.command()
@ends
def edit(number: Number, text: str, data: Data = None) -> None:
    """Give a fact another text."""
    with opened(data) as store:
        store.facts.change(number, text)


@app.command()
@ends
def rm(number: Number, data: Data = None) -> None:
    """Forget a fact."""
    with opened(data) as store:
        store.facts.remove(number)


@app.command()
@ends
def export(data: Data = None) -> None:
    """Write all facts as one JSON list."""
    with opened(data) as store:
        json.dump([asdict(fact) for fact in store.facts.all()], sys.stdout, indent=1)
    typer.echo()
