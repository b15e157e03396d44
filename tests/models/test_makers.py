"""Sampling as a model's makers recommend it, wherever they write it down."""

import json
from pathlib import Path
from typing import Any

import pytest
from gguf_files import write
from ollama_store import keep

from h2o_chat.base.config import Sampling
from h2o_chat.base.errors import ModelError
from h2o_chat.models.makers import USUAL, Makers, recommended
from h2o_chat.models.resolve import find

NO_CUTS = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ({}, USUAL),
        ({"do_sample": True}, USUAL),
        ({"temperature": 0.6}, USUAL | {"temperature": 0.6}),
        ({"repetition_penalty": 1.1}, USUAL | {"repetition_penalty": 1.1}),
        (
            {"temperature": 0.6, "top_p": 0.95, "do_sample": True},
            NO_CUTS | {"temperature": 0.6, "top_p": 0.95},
        ),
        ({"top_k": 64, "do_sample": True}, NO_CUTS | {"temperature": 1.0, "top_k": 64}),
        ({"do_sample": False, "temperature": 0.6}, USUAL | {"temperature": 0.0}),
        ({"temperature": 1e-6}, USUAL | {"temperature": 0.0}),
    ],
    ids=str,
)
def test_a_folder(said: dict[str, Any], meant: dict[str, float], llama: Path) -> None:
    (llama / "generation_config.json").write_text(json.dumps({"eos_token_id": 2} | said))
    assert recommended(find(str(llama))) == meant


def test_a_folder_that_says_nothing(llama: Path) -> None:
    (llama / "generation_config.json").unlink(missing_ok=True)
    assert recommended(find(str(llama))) == USUAL


def test_pocket_is_greedy() -> None:
    assert recommended(find("pocket"))["temperature"] == 0


def test_a_gguf_file_and_ollama_which_comes_first(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"general.sampling.temp": 0.5, "general.sampling.top_k": 40}
    file = write(llama, tmp_path / "tiny.gguf", "Q8_0", values=values)
    assert recommended(find(str(file))) == NO_CUTS | {"temperature": 0.5, "top_k": 40}
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    keep(tmp_path / "ollama", file, params='{"temperature": 0.25, "repeat_penalty": 1.5, "stop": ["x"]}')
    keep(tmp_path / "ollama", file, tag="plain", params='{"stop": ["x"]}')
    keep(tmp_path / "ollama", file, tag="bare")
    said = USUAL | {"temperature": 0.25, "repetition_penalty": 1.5}
    assert recommended(find("ollama:tiny")) == said
    for tag in ("plain", "bare"):
        assert recommended(find(f"ollama:tiny:{tag}")) == NO_CUTS | {"temperature": 0.5, "top_k": 40}


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ("{", "is not JSON"),
        ("[]", "JSON object"),
        ('{"temperature": "hot"}', "'hot'"),
        ('{"top_p": 7}', "--top-p is 7"),
        ('{"top_k": 2.5}', "'2.5'"),
        ('{"min_p": true}', "'True'"),
    ],
)
def test_what_cannot_be_is_refused_with_the_file(written: str, wrong: str, llama: Path) -> None:
    path = llama / "generation_config.json"
    path.write_text(written)
    with pytest.raises(ModelError) as caught:
        recommended(find(str(llama)))
    assert str(path) in caught.value.message
    assert wrong in caught.value.message


def test_what_a_person_named_comes_before_it_and_the_cuts_stay() -> None:
    asked = Sampling(temperature=0.8, max_tokens=5)
    assert Makers(USUAL, {"temperature"}).complete(asked) == Sampling(
        temperature=0.8, top_p=0.9, min_p=0.05, max_tokens=5
    )
    assert Makers().complete(asked) == asked, "whose makers were not asked"
