"""`h2o-chat models`: lists, fetches, describes and removes models."""

import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from h2o_chat.base import precedence
from h2o_chat.base.config import config_file, data_folder, user_aliases
from h2o_chat.base.errors import H2OChatError, ModelError, name_of
from h2o_chat.base.progress import progress_bar
from h2o_chat.cli.commands import FetchYes, asking, confirmed, ends, print_rows
from h2o_chat.cli.typer_messages import PlainTyper
from h2o_chat.models import ollama, smollm2
from h2o_chat.models.aliases import ALIASES, Alias, fits
from h2o_chat.models.families import OPENS, families, refusal
from h2o_chat.models.gguf import header_of
from h2o_chat.models.gguf_config import FAMILIES, config_of, held_as
from h2o_chat.models.here import models_here, spelled_out
from h2o_chat.models.hub_cache import cache_folder, cached
from h2o_chat.models.model_files import check_weights, read_config
from h2o_chat.models.obtain import fetch, fetch_smollm2, size
from h2o_chat.models.resolve import HubModel, LocalModel, find, look_up, names_starting_with
from h2o_chat.native.model_frame import FAMILIES as NATIVE
from h2o_chat.native.model_frame import FROM_GGUF
from h2o_chat.native.packed_file import PackedFile, home_of, packed_files, packed_files_of, remove
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
    """List what is here, the model used last first. With --hub also what can be had."""
    used = models_used(data_folder(None))
    typer.echo("here: h2o-chat -m NAME")
    kept = {one.name: _of_ollama(one) for one in ollama.installed()}
    rows = [(one.name, size(one.bytes), kept.get(one.name, one.where)) for one in models_here(used)]
    listed = {name for name, *_ in rows}
    rows += [(name, "", about) for name, about in kept.items() if name not in listed]
    _table([("NAME", "SIZE", "WHERE"), *rows])
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
    typer.echo("\nto be had; fits: into this machine's memory")
    _table(_hub_rows(ALIASES.values()))


@app.command("families")
@ends
def families_() -> None:
    """List every text family of transformers. It opens, natively too, or is refused: why."""
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
    model = look_up(name)
    if isinstance(model, LocalModel):
        typer.echo(f"{model.name} is here: {name_of(model.folder)}")
        return
    fetch(model, asking(yes))
    typer.echo(f"{model.repository} is here.")
    _pack(find(model.repository))


@app.command()
@ends
def info(
    name: Name,
    check: Annotated[
        bool, typer.Option("--check", help="Verify its packed files; repair what fails.")
    ] = False,
) -> None:
    """Tell what is known of a model, without the network."""
    model = look_up(spelled_out(name, data_folder(None)))
    if check and isinstance(model, LocalModel):
        _check(model)
    if isinstance(model, HubModel):
        typer.echo(f"{model.repository} is not here: h2o-chat models pull {model.repository}")
        if known := [one for one in ALIASES.values() if one.repository == model.repository]:
            _table(_hub_rows(known))
    else:
        typer.echo(model.name)
        _table(_rows_of(model))


@app.command()
@ends
def rm(name: Name, yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False) -> None:
    """Remove a fetched model from the cache."""
    kept = cached(name) if "/" in name and not Path(name).exists() else None
    model = HubModel(name) if kept and kept.files else look_up(name)
    if isinstance(model, LocalModel) and model.folder == smollm2.place():
        _remove(model.name, name_of(model.folder), _packed_of(model.folder), yes, model.folder.unlink)
        return
    if isinstance(model, LocalModel) and model.revision is None:
        # its name may be that of a fetched one too
        if packed := _packed_of(model.folder):
            of, stays = f"{_in_all(packed)} of {model.name}", f"Its {_what(model)} stays"
            if _removed(f"Remove {of}? {stays}.", packed, yes):
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
    packed = _packed_of(there.folder or there.root)
    _remove(repository, what, packed, yes, partial(shutil.rmtree, there.root))


def _remove(
    name: str, what: str, packed: Sequence[PackedFile], yes: bool, delete: Callable[[], object]
) -> None:
    more = f", and {_in_all(packed)}" if packed else ""
    if _removed(f"Remove {what}{more}?", packed, yes):
        delete()
        typer.echo(f"Removed {name}.")


def _hub_rows(aliases: Iterable[Alias]) -> list[tuple[str, ...]]:
    import psutil

    memory = psutil.virtual_memory().total
    rows: list[tuple[str, ...]] = [("NAME", "16 BIT", "4 BIT", "WINDOW", "FITS", "", "REPOSITORY")]
    for one in aliases:
        notes = ", ".join([*(["gated"] if one.gated else []), *([] if one.chat else ["base model"])])
        sizes = size(one.bytes_16), size(one.bytes_4), f"{one.window:,}", fits(one, memory)
        rows.append((one.name, *sizes, notes, one.repository))
    return rows


def _table(rows: Sequence[Sequence[str]]) -> None:
    print_rows([["", *map(name_of, row)] for row in rows])


def _rows_of(model: LocalModel) -> list[tuple[str, ...]]:
    config, weights = read_config(model.folder), check_weights(model.folder)
    window = config.get("max_position_embeddings")
    rows: list[tuple[str, ...]] = [
        (_what(model), str(model.folder)),
        ("revision", model.revision or f"none: a {_what(model)}"),
        ("family", str(config["model_type"])),
        ("parameters", f"{weights.parameters:,} ({weights.dtype})"),
        ("16 bit", size(2 * weights.parameters)),
        ("window", f"{window:,}" if isinstance(window, int) else "not said"),
        ("template", "the model's own" if _has_template(model.folder) else "none: see --template"),
    ]
    if model.folder.is_file():
        types, held_bytes = held_as(header_of(model.folder))
        rows.append(("held as", f"{types}, {size(held_bytes)}"))
    now, before = packed_files_of(model.folder)
    rows += [("packed", f"int{one.bits}, {size(one.bytes)}: {one.path}") for one in now]
    unused = "of earlier weights: h2o-chat models rm removes it"
    return rows + [("packed", f"int{one.bits}, {size(one.bytes)}, {unused}: {one.path}") for one in before]


def _check(model: LocalModel) -> None:
    """Verifies ollama's file and every packed file; a damaged one of these is packed again."""
    from h2o_chat.native.packing import packed_for

    with progress_bar() as progress:
        ollama.check(model.folder, progress, again=True)
        notes = [
            packed_for(model.folder, one.bits, progress, verify=True).note
            for one in packed_files_of(model.folder)[0]
        ]
    for note in filter(None, notes):
        typer.echo(f"h2o-chat: {note}", err=True)


def _of_ollama(model: ollama.OllamaModel) -> str:
    """Its licence, and whether it will run."""
    if model.wrong:
        return model.wrong
    try:
        _, file = ollama.find(model.name)
        header = header_of(file)
        config_of(header)
    except ModelError as error:
        return f"does not run: {error.message}"
    runs = "runs" if _has_template(file) else "runs with --template"
    if header.architecture not in FAMILIES:
        runs += f", where transformers reads files of {header.architecture[:60]}"
    return ", ".join(filter(None, ("ollama's", ollama.licence_of(model)[:60], runs)))


def _what(model: LocalModel) -> str:
    return "file" if model.folder.is_file() else "folder"


def _has_template(model: Path) -> bool:
    if model.is_file():
        return bool(header_of(model).text("tokenizer.chat_template", ""))
    about = model / "tokenizer_config.json"
    inside = about.is_file() and '"chat_template"' in about.read_text(encoding="utf-8")
    return inside or (model / "chat_template.jinja").is_file()


def _pack(model: LocalModel) -> None:
    """Packs a fetched model, where the native step will use it; a failure is only reported."""
    from h2o_chat.native.library import why_not

    if model.folder.is_file() or why_not():  # the weights of a GGUF file are read as they are
        return
    from h2o_chat.native.packing import packed_for, usual_bits
    from h2o_chat.native.probing import frame_of

    try:
        if isinstance(frame_of(model.folder), str):
            return
        bits = usual_bits(check_weights(model.folder).parameters)
        with progress_bar() as progress:
            packed = packed_for(model.folder, bits, progress)
    except H2OChatError as error:
        sys.stderr.write(f"h2o-chat: it is not packed yet: {error}\n")
        return
    typer.echo(f"Packed: int{bits}, {size(packed.path.stat().st_size)}.")


def _packed_of(folder: Path) -> list[PackedFile]:
    """All packed files of a model folder, or of a repository of which only a part was fetched."""
    if folder.is_file() or (folder / "config.json").is_file():
        now, before = packed_files_of(folder)
        return now + before
    return [one for one in packed_files() if one.home == home_of(folder)]


def _in_all(packed: Sequence[PackedFile]) -> str:
    what = "1 packed file" if len(packed) == 1 else f"{len(packed)} packed files"
    return f"{what} ({size(sum(one.bytes for one in packed))})"


def _removed(question: str, packed: Sequence[PackedFile], yes: bool) -> bool:
    """Removes packed files, after asking; False where somebody said no."""
    if not yes and not confirmed(question):
        typer.echo("Nothing was removed.", err=True)
        return False
    for one in packed:
        remove(one.path)
    return True
