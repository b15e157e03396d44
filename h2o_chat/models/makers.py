"""Sampling that a model's makers recommend in ollama, a GGUF file or generation_config.json. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from h2o_chat.base.config import BY_THE_MAKERS, Sampling
from h2o_chat.base.errors import ModelError, UsageError
from h2o_chat.models import gguf, ollama
from h2o_chat.models.model_files import read_json
from h2o_chat.models.resolve import LocalModel

USUAL = {"temperature": 0.7, "top_p": 0.9, "top_k": 0, "min_p": 0.05, "repetition_penalty": 1.0}
"""Values if the makers recommend none. Without the cuts a small model babbles at a temperature of .8."""

CUTS = {"top_p": 1.0, "top_k": 0, "min_p": 0.0}
"""Cuts of unlikely tokens, each with the value that switches it off."""

GREEDY_BELOW = 0.001
"""A lower temperature means 0: some makers write 1e-6."""

_OLLAMA = {name: name for name in BY_THE_MAKERS} | {"repetition_penalty": "repeat_penalty"}
_GGUF = {name: f"general.sampling.{name}" for name in BY_THE_MAKERS} | {
    "temperature": "general.sampling.temp",
    "repetition_penalty": "general.sampling.penalty_repeat",
}


def recommended(model: LocalModel) -> dict[str, float]:
    """A value for each field of `BY_THE_MAKERS`: the makers' one, or that of `USUAL`.

    If the makers name one cut, the others are off. `do_sample: false` means temperature 0. Raises ModelError
    if a file cannot be read, or recommends a value out of range.
    """
    said, where = _said(model)
    if any(name in said for name in CUTS):
        said = {"temperature": 1.0} | CUTS | said  # transformers' default temperature
    if said.get("temperature", 1.0) < GREEDY_BELOW:
        said["temperature"] = 0.0
    values: dict[str, Any] = USUAL | said
    try:
        Sampling(**values)
    except UsageError as error:
        raise ModelError(
            f"{where} recommends sampling that cannot be: {error.message}", f"{error.hint} Mend the file."
        ) from error
    return values


@dataclass(frozen=True)
class Makers:
    """Sampling that a model's makers recommend; settings that the user named take precedence."""

    values: Mapping[str, float] = field(default_factory=dict)  # Empty: not looked up
    named: set[str] = field(default_factory=set)

    def complete(self, sampling: Sampling) -> Sampling:
        """`sampling` with the makers' values for the fields that the user did not name."""
        unnamed: dict[str, Any] = {
            name: value for name, value in self.values.items() if name not in self.named
        }
        return replace(sampling, **unnamed)


def _said(model: LocalModel) -> tuple[dict[str, float], Path]:
    """Recommended values by field, and the file that has them."""
    if model.name.startswith(ollama.PREFIX) and (params := ollama.params_of(model.name)):
        path, values = params
        if said := _numbers(values, _OLLAMA, path):
            return said, path
    if model.folder.is_file():
        return _numbers(gguf.header_of(model.folder).values, _GGUF, model.folder), model.folder
    path = model.folder / "generation_config.json"
    if not path.is_file():
        return {}, path
    config = read_json(path)
    said = _numbers(config, {name: name for name in BY_THE_MAKERS}, path)
    return (said | {"temperature": 0.0} if config.get("do_sample") is False else said), path


def _numbers(values: Mapping[str, Any], keys: Mapping[str, str], where: Path) -> dict[str, float]:
    said = {name: values[key] for name, key in keys.items() if values.get(key) is not None}
    for name, value in said.items():
        if type(value) is not int and (type(value) is not float or name == "top_k"):
            raise ModelError(f"{where}: {keys[name]} is {str(value)[:60]!r}, no number.", "Fetch it again.")
    return said
