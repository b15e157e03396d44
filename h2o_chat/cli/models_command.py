"""`h2o-chat models`: lists, fetches, describes and removes models."""

import shutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from h2o_chat.base import precedence
from h2o_chat.base.config import config_file, data_folder, user_aliases
from h2o_chat.base.errors import ModelError, name_of
from h2o_chat.base.progress import progress_bar
from h2o_chat.cli.commands import FetchYes, asking, ends
from h2o_chat.cli.packed_files import (
    check_packed,
    gguf_rows,
    in_all,
    ollama_rows,
    pack_fetched,
    packed_of,
    packed_rows,
    removed,
    template_of,
)
from h2o_chat.cli.typer_messages import PlainTyper
from h2o_chat.models import ollama, smollm2
from h2o_chat.models.aliases import ALIASES, Alias, fits
from h2o_chat.models.families import OPENS, families, refusal
from h2o_chat.models.here import models_here
from h2o_chat.models.hub_cache import cache_folder, cached
from h2o_chat.models.model_files import check_weights, read_config
from h2o_chat.models.obtain import fetch, fetch_smollm2, size
from h2o_chat.models.resolve import HubModel, LocalModel, find, look_up, names_starting_with
from h2o_chat.native.model_frame import FAMILIES as NATIVE
from h2o_chat.native.model_frame import FROM_GGUF
from h2o_chat.native.packed_folder import PackedFile
from h2o_chat.store import models_used

app = PlainTyper(help="What is here, what can be had; fetch, look at and remove models.")

Name = Annotated[str, typer.Argument(help="A short name or org/name.", autocompletion=names_starting_with)]


@app.callback(invoke_without_command=True)
def overview(context: typer.Context) -> None:
    """List what is here and what can be had."""
    if context.invoked_subcommand is None:
        list_()


@app.command("list")
@ends
def list_(
    hub: Annotated[bool, typer.Option("--hub", help="Those that can be fetched, too.")] = False,
) -> None:
    """List what is here, the model used last first; with --hub also what can be had."""
    used = models_used(data_folder(None))
    typer.echo("here: h2o-chat -m NAME")
    here = [one for one in models_here(used) if not one.name.startswith(ollama.PREFIX)]  # see below
    rows = [(one.name, size(one.bytes), one.where) for one in here]
    _table([("NAME", "SIZE", "WHERE"), *rows])
    if of_ollama := ollama_rows():
        typer.echo(f"\nhere, in {name_of(ollama.models_folder())}, which is ollama's")
        _table(of_ollama)
    own = user_aliases()
    if own:
        typer.echo(f"\nyour own names, from {name_of(config_file())}")
        _table([(name, target) for name, target in own.items()])
    if not smollm2.is_here():
        what = f"SmolLM2-135M-Instruct, {size(smollm2.WHEEL_BYTES)} from pip's package index"
        typer.echo(f"\nto be had\n  {smollm2.NAME}: {what}")
    if not hub:
        more = f"{len(ALIASES)} more can be fetched: h2o-chat models list --hub"
        folders = "GGUF files elsewhere: h2o-chat config set model_folders '[\"FOLDER\"]'"
        typer.echo(f"\n{more}" + ("" if precedence.model_folders() else f"\n{folders}"))
        return
    import psutil

    memory = psutil.virtual_memory().total
    typer.echo(f"\nto be had; fits: with this machine's {size(memory)} of memory")
    header = ("NAME", "16 BIT", "4 BIT", "WINDOW", "FITS", "", "REPOSITORY")
    _table([header, *(_row(alias, memory) for alias in ALIASES.values())])


@app.command("families")
@ends
def families_() -> None:
    """List every text family of transformers: opens, opens in the native step, or why it is refused."""
    rows: list[tuple[str, ...]] = [("FAMILY", "", "WHY NOT", "WHAT TO TAKE")]
    for family in families():
        refused = refusal(family)
        opens = "native" if family in NATIVE or family == FROM_GGUF else "opens"
        rows.append((family, "refused", *refused) if refused else (family, opens, "", ""))
    _table(rows)
    opening = sum(said == OPENS for said in families().values())
    typer.echo(
        f"\n{opening} of {len(families())} open; native: on a CPU with this program's own step", err=True
    )


@app.command()
@ends
def pull(name: Name, yes: FetchYes = False) -> None:
    """Fetch a model; call again to go on where it broke off."""
    if name.lower() == smollm2.NAME and name.lower() not in user_aliases() and not smollm2.is_here():
        fetch_smollm2()
        typer.echo(f"{smollm2.NAME} is here: {name_of(smollm2.place())}")
        pack_fetched(find(smollm2.NAME))
        return
    model = look_up(name)
    if isinstance(model, LocalModel):
        typer.echo(f"{model.name} is here: {name_of(model.folder)}")
        return
    fetch(model, asking(yes))
    typer.echo(f"{model.repository} is here.")
    pack_fetched(find(model.repository))


@app.command()
@ends
def info(
    name: Name,
    check: Annotated[
        bool, typer.Option("--check", help="Verify its packed files; repair what fails.")
    ] = False,
) -> None:
    """Tell what is known of a model, without the network."""
    model = look_up(name)
    if check and isinstance(model, LocalModel):
        with progress_bar() as progress:
            ollama.check(model.folder, progress, again=True)
        check_packed(model)
    _tell(model)


@app.command()
@ends
def rm(name: Name, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False) -> None:
    """Remove a fetched model from the cache."""
    model = look_up(name)
    if isinstance(model, LocalModel) and model.folder == smollm2.place():
        _remove(model.name, name_of(model.folder), packed_of(model.folder), yes, model.folder.unlink)
        return
    if isinstance(model, LocalModel) and model.revision is None:
        # its name may be that of a fetched one too
        if packed := packed_of(model.folder):
            of, stays = f"{in_all(packed)} of {model.name}", f"Its {_what(model)} stays"
            if removed(f"Remove {of}? {stays}.", packed, yes):
                typer.echo(f"Removed {of}. {stays}: it is yours to delete.")
            return
        raise ModelError(
            f"{name} is the {_what(model)} {model.folder.absolute()}, which was not fetched: it is not"
            " removed.",
            "Models of ollama are removed by: ollama rm NAME"
            if ollama.is_blob(model.folder)
            else f"{_what(model).capitalize()}s of your own are yours to delete.",
        )
    repository = model.repository if isinstance(model, HubModel) else model.name
    there = cached(repository)
    if there is None:
        raise ModelError(f"{name} is not in {cache_folder()}, so there is nothing to remove.")
    what = f"{repository} ({size(there.bytes)}) from {name_of(cache_folder())}"
    packed = packed_of(there.folder or there.root)
    _remove(repository, what, packed, yes, partial(shutil.rmtree, there.root))


def _remove(
    name: str, what: str, packed: Sequence[PackedFile], yes: bool, delete: Callable[[], object]
) -> None:
    """Removes a model and its packed files, after asking."""
    more = f", and {in_all(packed)}" if packed else ""
    if removed(f"Remove {what}{more}?", packed, yes):
        delete()
        typer.echo(f"Removed {name}.")


def _row(alias: Alias, memory: int) -> tuple[str, ...]:
    notes = [*(["gated"] if alias.gated else []), *([] if alias.chat else ["base model"])]
    return (
        alias.name,
        size(alias.bytes_16),
        size(alias.bytes_4),
        f"{alias.window:,}",
        fits(alias, memory),
        ", ".join(notes),
        alias.repository,
    )


def _table(rows: list[tuple[str, ...]]) -> None:
    """One line a row; on a terminal it is cut at the edge."""
    rows = [tuple(map(name_of, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    most = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for row in rows:
        line = "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo(line.rstrip()[:most])


def _tell(model: LocalModel | HubModel) -> None:
    """Prints what the files of a present model say, or the table of known models about an absent one."""
    repository = model.repository if isinstance(model, HubModel) else model.name
    alias = next((one for one in ALIASES.values() if one.repository == repository), None)
    typer.echo(repository)
    rows: list[tuple[str, ...]] = []
    if isinstance(model, LocalModel):
        config, weights = read_config(model.folder), check_weights(model.folder)
        window = config.get("max_position_embeddings")
        rows += [
            (_what(model), str(model.folder)),
            ("revision", model.revision or f"none: a {_what(model)}"),
            ("family", str(config["model_type"])),
            ("parameters", f"{weights.parameters:,} ({weights.dtype})"),
            ("16 bit", size(2 * weights.parameters)),
            ("window", f"{window:,}" if isinstance(window, int) else "not said"),
            ("template", _template(model.folder)),
            *(gguf_rows(model.folder) if model.folder.is_file() else []),
            *packed_rows(model.folder),
        ]
    elif alias is None:
        rows += [("here", f"no: h2o-chat models pull {repository}")]
    else:
        rows += [
            ("here", f"no: h2o-chat models pull {alias.name}"),
            ("family", alias.family),
            ("parameters", f"{alias.parameters:,}"),
            ("16 bit", size(alias.bytes_16)),
            ("4 bit", size(alias.bytes_4)),
            ("window", f"{alias.window:,}"),
            ("template", "the model's own" if alias.chat else "none: see --template"),
            ("gated", f"yes: see huggingface.co/{repository}" if alias.gated else "no"),
        ]
    _table(rows)


def _what(model: LocalModel) -> str:
    return "file" if model.folder.is_file() else "folder"


def _template(folder: Path) -> str:
    if folder.is_file():
        return template_of(folder)
    about = folder / "tokenizer_config.json"
    own = about.is_file() and '"chat_template"' in about.read_text(encoding="utf-8")
    own = own or (folder / "chat_template.jinja").is_file()
    return "the model's own" if own else "none: see --template"
