"""Loads a model's tokenizer and checks that it belongs to the model and prints no control characters."""

import contextlib
import json
from pathlib import Path
from typing import Any

import transformers

from h2o_chat.base.errors import ModelError
from h2o_chat.models.gguf import header_of
from h2o_chat.models.gguf_tokenizer import tokenizer_of
from h2o_chat.models.tokenizer_calls import blamed_on_the_model

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")

_AS_IT_STANDS = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""Names of the class that uses tokenizer.json unchanged."""
_BELIEVED = ("llama", "qwen3", "smollm3")
"""`model_type`s for which AutoTokenizer takes that class; for qwen2 it has another one."""


def load_tokenizer(folder: Path, vocabulary: int) -> Any:
    """Loads the tokenizer of a model with `vocabulary` tokens.

    Raises ModelError if it is missing, damaged, or has tokens that the model lacks.
    """
    if folder.is_dir():
        if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
            expected = f"Expected one of: {', '.join(_TOKENIZER_FILES)}."
            raise ModelError(f"{folder} has no tokenizer.", expected)
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            _check_keys(folder / name)
    # A damaged tokenizer raises exceptions of three libraries, one of which raises bare Exception.
    with blamed_on_the_model(f"The tokenizer in {folder} cannot be loaded", "Fetch its files again."):
        tokenizer = tokenizer_of(header_of(folder)) if folder.is_file() else _from_folder(folder)
        tokenizer.decode(tokenizer("Hello", add_special_tokens=False)["input_ids"])  # some fail here
        unknown = _tokens_outside(tokenizer, vocabulary)
    if unknown:
        raise ModelError(
            f"The tokenizer does not belong to the model: {unknown[0]!r} is one of {len(unknown):,} tokens"
            f" beyond the model's {vocabulary:,}.",
            "Fetch the tokenizer files of the same model.",
        )
    return tokenizer


def _from_folder(folder: Path) -> Any:
    """AutoTokenizer's tokenizer; where the files name its class, the model's class is not imported."""
    told, about = (_read_if_there(folder / name) for name in ("tokenizer_config.json", "config.json"))
    named = told.get("tokenizer_class")  # of no use where its code comes with the model
    named = named if isinstance(named, str) and "auto_map" not in told else None
    kind = about.get("model_type")
    if named in _AS_IT_STANDS and kind in _BELIEVED and (folder / "tokenizer.json").is_file():
        return transformers.PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    config = None
    if named:  # AutoTokenizer needs only these fields
        config = transformers.PreTrainedConfig(name_or_path=str(folder))
        config.model_type, config.tokenizer_class = kind or "", about.get("tokenizer_class")
    return transformers.AutoTokenizer.from_pretrained(
        folder, config=config, local_files_only=True, trust_remote_code=False
    )


def _read_if_there(path: Path) -> dict[str, Any]:
    """A JSON object; empty if the file is missing or damaged, which is reported when it is loaded."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = json.loads(path.read_bytes())
        return found if isinstance(found, dict) else {}
    return {}


def _check_keys(path: Path) -> None:
    """Refuses keys with control characters: tokenizers print unknown keys on stdout."""
    odd: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        odd.extend(key for key, _ in pairs if not key.isprintable())

    with contextlib.suppress(OSError, ValueError, RecursionError):  # reported when it is loaded
        json.loads(path.read_bytes(), object_pairs_hook=look)
    if odd:
        raise ModelError(f"{path} is damaged: {odd[0][:60]!a} can be no key.", "Fetch the file again.")


def _tokens_outside(tokenizer: Any, rows: int) -> list[str]:
    """Tokens without a row in the embedding that text can produce, unlike Gemma 3's markers for images."""
    markers = tokenizer.added_tokens_decoder
    needed = {tokenizer.bos_token_id, tokenizer.eos_token_id}
    template = json.dumps(tokenizer.chat_template or "", ensure_ascii=False)
    return [
        token
        for token, number in tokenizer.get_vocab().items()
        if number >= rows and (number not in markers or number in needed or token in template)
    ]
