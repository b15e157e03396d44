"""For `h2o-chat models`: packed weights, shown, checked, made and removed; rows of GGUF files and ollama."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import typer

from h2o_chat.base.errors import H2OChatError, ModelError, name_of
from h2o_chat.base.progress import progress_bar
from h2o_chat.cli.commands import confirmed
from h2o_chat.models import ollama
from h2o_chat.models.gguf import header_of
from h2o_chat.models.gguf_config import FAMILIES, config_of, held_as
from h2o_chat.models.model_files import check_weights
from h2o_chat.models.obtain import size
from h2o_chat.models.resolve import LocalModel
from h2o_chat.native.packed_folder import PackedFile, home_of, packed_files, packed_files_of, remove


def packed_rows(folder: Path) -> list[tuple[str, str]]:
    """Rows of `models info`: packed files, and those of earlier weights."""
    now, before = packed_files_of(folder)
    rows = [("packed", f"int{one.bits}, {size(one.bytes)}, {_state(one)}: {one.path}") for one in now]
    rows += [
        ("packed before", f"int{one.bits}, {size(one.bytes)}, not used any more: {one.path}")
        for one in before
    ]
    return rows


def _state(kept: PackedFile) -> str:
    if kept.header is None:
        return "damaged, made anew at the next start"
    if kept.checked_at is None:
        return "changed since it was checked, checked at the next start"
    return time.strftime("checked %Y-%m-%d %H:%M", time.localtime(kept.checked_at))


def check_packed(model: LocalModel) -> None:
    """Verifies every packed file of a model; a damaged one is packed again.

    Raises:
        PackedError: that is not possible.
        ModelError: the model's own weights are damaged.
    """
    from h2o_chat.native.packing import packed_for

    for one in packed_files_of(model.folder)[0]:
        with progress_bar() as progress:
            packed = packed_for(model.folder, one.bits, progress, verify=True)
        if packed.note:
            typer.echo(f"h2o-chat: {packed.note}", err=True)


def pack_fetched(model: LocalModel) -> None:
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


def packed_of(folder: Path) -> list[PackedFile]:
    """All packed files of a model folder, or of a repository of which only a part was fetched."""
    if folder.is_file() or (folder / "config.json").is_file():
        now, before = packed_files_of(folder)
        return now + before
    return [one for one in packed_files() if one.home == home_of(folder)]


def in_all(packed: Sequence[PackedFile]) -> str:
    """Their number and size, in words."""
    what = "1 packed file" if len(packed) == 1 else f"{len(packed)} packed files"
    return f"{what} ({size(sum(one.bytes for one in packed))})"


def removed(question: str, packed: Sequence[PackedFile], yes: bool) -> bool:
    """Removes packed files, after asking; False where somebody said no."""
    if not yes and not confirmed(question):
        typer.echo("Nothing was removed.", err=True)
        return False
    for one in packed:
        remove(one.path)
    return True


_SHOWN = 60
"""Most characters of a licence, or of a reason."""


def ollama_rows() -> list[tuple[str, ...]]:
    """Name, size, licence, and whether it will run, for each model that ollama keeps."""
    found = ollama.installed()
    header: list[tuple[str, ...]] = [("NAME", "SIZE", "LICENCE", "RUNS")] if found else []
    return header + [(one.name, size(one.bytes), _licence(one), _runs(one)) for one in found]


def gguf_rows(file: Path) -> list[tuple[str, str]]:
    """Rows of `models info`: the weights of a file, and what ollama keeps beside them."""
    header = header_of(file)
    types, held_bytes = held_as(header)
    rows = [("held as", f"{types}, {size(held_bytes)}")]
    for one in ollama.installed():
        if one.blob("model") == file:
            rows += [("ollama", one.name), ("licence", _licence(one) or "none")]
    return rows


def template_of(file: Path) -> str:
    if header_of(file).text("tokenizer.chat_template", ""):
        return "the file's own"
    return "none: see --template" + (" (ollama's own are not Jinja)" if ollama.is_blob(file) else "")


def _licence(model: ollama.OllamaModel) -> str:
    lines = ollama.text_of(model.blob("license")).split("\n")
    return next((name_of(line.strip())[:_SHOWN] for line in lines if line.strip()), "")


def _runs(model: ollama.OllamaModel) -> str:
    if model.wrong:
        return f"no: {model.wrong[:_SHOWN]}"
    try:
        _, file = ollama.find(model.name)
        header = header_of(file)
        config_of(header)
    except ModelError as error:
        return f"no: {error.message[:200]}"
    if header.architecture not in FAMILIES:
        return f"where transformers reads files of {name_of(header.architecture)[:_SHOWN]}"
    return "yes" if header.text("tokenizer.chat_template", "") else "yes, with --template"
