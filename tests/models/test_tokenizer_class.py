"""Tokenizers are those that AutoTokenizer makes, whatever the files name, though less is imported for it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import transformers

from h2o_chat.base.errors import ModelError
from h2o_chat.models import resolve
from h2o_chat.models.load_tokenizer import load_tokenizer
from h2o_chat.native.model_frame import FAMILIES

CLASSES = (
    *("TokenizersBackend", "PreTrainedTokenizerFast", "LlamaTokenizer", "LlamaTokenizerFast"),
    *("GPT2Tokenizer", "GPT2TokenizerFast", "Qwen2Tokenizer", "Qwen2TokenizerFast", "NoSuchTokenizer", None),
)
TEXTS = (
    "Hello, how are you?",
    "  Two spaces,\n\nlines and 1,234 digits.",
    "naïve café – 日本語 🙂",
    "<|user|>",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Configuration and tokenizer of the bundled model."""
    for file in resolve.find(None).folder.glob("*"):
        if file.suffix in (".json", ".jinja"):
            shutil.copy(file, tmp_path)
    return tmp_path


def change(file: Path, **fields: Any) -> None:
    """Other fields; None: without them."""
    now = json.loads(file.read_text("utf-8")) | fields
    file.write_text(json.dumps({name: value for name, value in now.items() if value is not None}))


def about(tokenizer: Any) -> dict[str, Any]:
    """All that a tokenizer is."""
    return {
        "class": type(tokenizer),
        "made with": {name: str(value) for name, value in tokenizer.init_kwargs.items()},
        "pieces": tokenizer.backend_tokenizer.to_str(),
        "marks": tokenizer.special_tokens_map,
        "template": tokenizer.chat_template,
        "ids": [tokenizer(text)["input_ids"] for text in TEXTS],
        "texts": [tokenizer.decode(tokenizer(text)["input_ids"]) for text in TEXTS],
    }


@pytest.mark.parametrize(
    ("family", "rope"),
    [
        ("llama", {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 8192}),
        ("qwen2", {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("named", ["LlamaTokenizer", "Qwen2Tokenizer", "PreTrainedTokenizerFast"])
def test_scaled_rotations_are_none_of_its_business(
    family: str, rope: dict[str, Any], named: str, folder: Path
) -> None:
    change(folder / "config.json", model_type=family, rope_scaling=rope, rope_parameters=None)
    change(folder / "tokenizer_config.json", tokenizer_class=named)
    assert about(load_tokenizer(folder, 4096)) == about(
        transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    )


@pytest.mark.parametrize("named", CLASSES)
@pytest.mark.parametrize("family", [*(one for one in FAMILIES if "gemma" not in one), "gpt2"])
def test_the_same_tokenizer(family: str, named: str | None, folder: Path) -> None:
    """Gemma's own class would need a token for what is unknown, and notices it when it encodes."""
    change(folder / "config.json", model_type=family, architectures=None)
    change(folder / "tokenizer_config.json", tokenizer_class=named)
    try:
        expected = about(transformers.AutoTokenizer.from_pretrained(folder))
    except Exception:  # whatever it is: it comes from three libraries
        with pytest.raises(ModelError, match="cannot be loaded"):
            load_tokenizer(folder, 4096)
    else:
        assert about(load_tokenizer(folder, 10**6)) == expected


@pytest.mark.parametrize("name", ["stories260k", "stories3m", "pilot-chat", "neo3m-chat"])
def test_the_same_tokenizer_of_a_real_model(name: str, shared_models: Path) -> None:
    expected = transformers.AutoTokenizer.from_pretrained(shared_models / name)
    assert about(load_tokenizer(shared_models / name, 10**6)) == about(expected)
