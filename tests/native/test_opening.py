"""Properties of a packed model equal those of transformers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from families import MODELS, Pack
from making import silent
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ModelError
from h2o_chat.models import load, resolve
from h2o_chat.models.fits import sizes_of
from h2o_chat.native import native_model


@pytest.mark.parametrize("name", MODELS)
def test_sizes(name: str, pack: Pack, folders: Callable[[str], Path]) -> None:
    packed = pack(name, 4)
    ours = native_model.LoadedNative(None, None, "tiny", None, "int4", "float32", "cpu", packed=packed)
    with torch.device("meta"):
        theirs = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folders(name)))
    assert ours.sizes == sizes_of(theirs.config)
    assert ours.parameters == theirs.num_parameters()


@pytest.mark.parametrize("ends", [7, [7, 8], None])
@pytest.mark.parametrize("where", ["generation_config.json", "config.json"])
def test_ends(where: str, ends: Any, tmp_path: Path) -> None:
    config = AutoConfig.for_model("llama", architectures=["LlamaForCausalLM"])
    if where == "generation_config.json":
        GenerationConfig(eos_token_id=ends).save_pretrained(tmp_path)
        config.eos_token_id = 1
    else:
        config.eos_token_id = ends
    config.save_pretrained(tmp_path)
    assert native_model._ends(tmp_path) == ends_of_transformers(tmp_path) == ends


@pytest.mark.parametrize("damaged", ["{", "[1]", "\xff"])
def test_damaged_ends_are_the_models(damaged: str, tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(damaged, "latin-1")
    with pytest.raises(ModelError, match=r"generation_config\.json cannot be read"):
        native_model._ends(tmp_path)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3"])
def test_ends_that_no_file_names(family: str, tmp_path: Path) -> None:
    fields = AutoConfig.for_model(family).to_dict()
    del fields["eos_token_id"]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert native_model._ends(tmp_path) == ends_of_transformers(tmp_path)


def ends_of_transformers(folder: Path) -> Any:
    """The end tokens of a model loaded from a folder."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    if (folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder)
    return model.generation_config.eos_token_id


@pytest.mark.usefixtures("compiled")
def test_the_second_start_loads_no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(quantize="int8", threads=1)
    first = native_model.open_model(settings, silent)
    monkeypatch.setattr(native_model, "check_family", lambda _: pytest.fail("the configuration was loaded"))
    second = native_model.open_model(settings, silent)
    assert isinstance(second, native_model.LoadedNative)
    assert (second.name, second.revision, second.ends) == (first.name, first.revision, first.ends)
    assert second.sizes == first.sizes == sizes_of(load.check_family(resolve.find(None).folder))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("damage", [b"", b"h2o-pack"])
def test_a_damaged_file_is_packed_again(damage: bytes) -> None:
    settings = Settings(quantize="int8", threads=1)
    first = native_model.open_model(settings, silent)
    assert isinstance(first, native_model.LoadedNative)
    first.packed.path.unlink()  # somebody has it mapped
    first.packed.path.write_bytes(damage)
    again = native_model.open_model(settings, silent)
    assert isinstance(again, native_model.LoadedNative)
    assert "is damaged" in again.packed.note
    assert again.sizes == first.sizes
