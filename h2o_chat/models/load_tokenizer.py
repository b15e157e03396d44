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


def load_tokenizer(folder: Path, config: Any) -> Any:
    """The tokenizer, if its tokens are the model's.

    Raises:
        ModelError: it is missing, damaged, or knows tokens that the model does not.
    """
    if folder.is_dir():
        _check_tokenizer_files(folder)
    # What a damaged tokenizer raises is up to three libraries, one of which raises bare Exception.
    with blamed_on_the_model(f"The tokenizer in {folder} cannot be loaded", "Fetch its files again."):
        if folder.is_file():
            tokenizer = tokenizer_of(header_of(folder))
        else:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        tokenizer.decode(tokenizer("Hello", add_special_tokens=False)["input_ids"])  # some fail only now
        unknown = _tokens_outside(tokenizer, config.vocab_size)
    if unknown:
        raise ModelError(
            f"The tokenizer does not belong to the model: {unknown[0]!r} is one of {len(unknown):,} tokens"
            f" beyond the model's {config.vocab_size:,}.",
            "Fetch the tokenizer files of the same model.",
        )
    return tokenizer


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
