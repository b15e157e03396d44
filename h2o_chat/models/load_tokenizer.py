"""A model's tokenizer, checked: it belongs to the model, and nothing of it is obeyed by a terminal."""

import contextlib
import json
from pathlib import Path
from typing import Any

import transformers

from h2o_chat.base.errors import ModelError
from h2o_chat.models.gguf import header_of
from h2o_chat.models.gguf_tokenizer import tokenizer_of
from h2o_chat.models.tokenizing import blamed_on_the_model

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")

_AS_IT_STANDS = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""Names of the class that takes tokenizer.json as it is."""
_BELIEVED = ("llama", "qwen3", "smollm3")
"""`model_type` of models for which AutoTokenizer then takes that class; for qwen2 it has one of its own."""


def load_tokenizer(folder: Path, vocabulary: int) -> Any:
    """The tokenizer, if its tokens are the model's.

    Args:
        vocabulary: tokens that the model knows.

    Raises:
        ModelError: it is missing, damaged, or knows tokens that the model does not.
    """
    if folder.is_dir():
        _check_tokenizer_files(folder)
    # What a damaged tokenizer raises is up to three libraries, one of which raises bare Exception.
    with blamed_on_the_model(f"The tokenizer in {folder} cannot be loaded", "Fetch its files again."):
        tokenizer = tokenizer_of(header_of(folder)) if folder.is_file() else _from_folder(folder)
        tokenizer.decode(tokenizer("Hello", add_special_tokens=False)["input_ids"])  # some fail only now
        unknown = _tokens_outside(tokenizer, vocabulary)
    if unknown:
        raise ModelError(
            f"The tokenizer does not belong to the model: {unknown[0]!r} is one of {len(unknown):,} tokens"
            f" beyond the model's {vocabulary:,}.",
            "Fetch the tokenizer files of the same model.",
        )
    return tokenizer


def _from_folder(folder: Path) -> Any:
    """The tokenizer that AutoTokenizer makes of the files, with fewer imports where these name its class.

    It would load the configuration to find the class of the model, and with that all that models are made of.
    """
    named = _named_class(folder)
    about = _read_if_there(folder / "config.json")
    kind = about.get("model_type")
    if named in _AS_IT_STANDS and kind in _BELIEVED and (folder / "tokenizer.json").is_file():
        return transformers.PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    config = None
    if named:  # AutoTokenizer asks it for no more; to read it all takes the model's own class
        config = transformers.PreTrainedConfig(name_or_path=str(folder))
        config.model_type, config.tokenizer_class = kind or "", about.get("tokenizer_class")
    return transformers.AutoTokenizer.from_pretrained(
        folder, config=config, local_files_only=True, trust_remote_code=False
    )


def _named_class(folder: Path) -> str | None:
    """The class that tokenizer_config.json names, where it is one of transformers' own."""
    about = _read_if_there(folder / "tokenizer_config.json")
    named = about.get("tokenizer_class")
    return named if isinstance(named, str) and "auto_map" not in about else None


def _read_if_there(path: Path) -> dict[str, Any]:
    """A JSON object; an empty one where there is none that can be read: whoever loads it says so."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = json.loads(path.read_bytes())
        return found if isinstance(found, dict) else {}
    return {}


def _check_tokenizer_files(folder: Path) -> None:
    """
    Raises:
        ModelError: they are missing, or name what a terminal would obey.
    """
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        raise ModelError(f"{folder} has no tokenizer.", f"Expected one of: {', '.join(_TOKENIZER_FILES)}.")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        _check_keys(folder / name)


def _check_keys(path: Path) -> None:
    """Tokenizers print keys that they do not know, raw, on stdout: what a terminal would obey is refused.

    Raises:
        ModelError: there is such a key.
    """
    odd: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        odd.extend(key for key, _ in pairs if not key.isprintable())

    with contextlib.suppress(OSError, ValueError, RecursionError):  # whoever loads it says so
        json.loads(path.read_bytes(), object_pairs_hook=look)
    if odd:
        raise ModelError(f"{path} is damaged: {odd[0][:60]!a} can be no key.", "Fetch the file again.")


def _tokens_outside(tokenizer: Any, rows: int) -> list[str]:
    """Tokens that can come up in a conversation and have no row in the model's embedding.

    Markers for images and the like may lie beyond it (Gemma 3): text cannot produce them.
    """
    markers = tokenizer.added_tokens_decoder
    needed = {tokenizer.bos_token_id, tokenizer.eos_token_id}
    template = json.dumps(tokenizer.chat_template or "", ensure_ascii=False)
    return [
        token
        for token, number in tokenizer.get_vocab().items()
        if number >= rows and (number not in markers or number in needed or token in template)
    ]
