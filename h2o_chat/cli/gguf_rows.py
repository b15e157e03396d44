"""Rows of `h2o-chat models` for GGUF files and for ollama's models."""

from pathlib import Path

from h2o_chat.base.errors import ModelError, name_of
from h2o_chat.models import ollama
from h2o_chat.models.gguf import header_of
from h2o_chat.models.gguf_config import FAMILIES, config_of, held_bits
from h2o_chat.models.obtain import size

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
    bits = held_bits(header)
    rows = [("packed as", f"int{bits}" if bits else "int4 or int8, by its size")]
    for one in ollama.installed():
        if one.blob("model") == file:
            rows += [("ollama", one.name), ("licence", _licence(one) or "none")]
    return rows


def template_of(file: Path) -> str:
    """The source of a file's chat template."""
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
