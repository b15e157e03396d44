"""The tokenizer and the chat template of a GGUF file, as transformers builds them from its vocabulary."""

from typing import Any

import transformers
from tokenizers import normalizers, pre_tokenizers
from transformers import GPT2Tokenizer, PreTrainedTokenizerFast
from transformers.integrations.gguf import convert_gguf_tokenizer
from transformers.integrations.gguf import gguf_tokenizer_mapping as mapping

from h2o_chat.base.config import TEMPLATES, Settings
from h2o_chat.base.errors import ModelError, UsageError
from h2o_chat.models.gguf import Header, damaged, header_of
from h2o_chat.models.ollama import is_blob
from h2o_chat.models.resolve import find

_BYTE_LEVEL, _PIECES = "gpt2", "llama"
_KEYS = {
    "tokens": "tokenizer.ggml.tokens",
    "scores": "tokenizer.ggml.scores",
    "token_type": "tokenizer.ggml.token_type",
    "merges": "tokenizer.ggml.merges",
}
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}

_WORDS = ("gpt-2", "olmo", "default")
"""`tokenizer.ggml.pre`: words as GPT-2 has them, which is what is built without any other word."""
_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell")
"""The same, and every digit apart."""


def tokenizer_of(header: Header) -> Any:
    """The tokenizer; it has a chat template where the file has one.

    Raises:
        ModelError: the file has none, or one of a kind that is not known here.
    """
    kind = header.text("tokenizer.ggml.model", "none")
    if kind not in (_BYTE_LEVEL, _PIECES):
        raise ModelError(
            f"{header.path} has a tokenizer of the kind {kind[:60]!r}, which is not read.",
            f"Known: {_BYTE_LEVEL} (byte-level BPE) and {_PIECES} (sentencepiece).",
        )
    found = {name: header.values[key] for name, key in _KEYS.items() if key in header.values}
    tokens = header.texts(_KEYS["tokens"])
    if len(set(tokens)) != len(tokens):
        raise damaged(header.path, "its vocabulary holds a token twice")
    backend = _byte_level(header, found) if kind == _BYTE_LEVEL else _pieces(header, found)
    ids = {name: header.token(f"tokenizer.ggml.{key}_token_id") for name, key in _SPECIAL.items()}
    special = {name: tokens[number] for name, number in ids.items() if number is not None}
    control = [one.content for one in backend.get_added_tokens_decoder().values() if one.special]
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        extra_special_tokens=[one for one in control if one not in special.values()],
        chat_template=header.text("tokenizer.chat_template", "") or None,
        clean_up_tokenization_spaces=False,
        **special,
    )


def require_template(settings: Settings) -> None:
    """
    Raises:
        UsageError: a conversation would be put to a GGUF file that does not say how.
        ModelError: no such model, or its file is damaged.
    """
    model = find(settings.model)
    if settings.template != "auto" or model.folder.is_dir():
        return
    if header_of(model.folder).text("tokenizer.chat_template", ""):
        return
    ollama = " (ollama's own are not Jinja, and not read)" if is_blob(model.folder) else ""
    raise UsageError(
        f"{model.name} comes without a chat template{ollama}.",
        f"Say how it was tuned: --template {', '.join(TEMPLATES[2:])}; or plain, if it only continues text.",
    )


def _byte_level(header: Header, found: dict[str, Any]) -> Any:
    """transformers' own way spells control tokens anew, and then does not know those of DeepSeek."""
    before = header.text("tokenizer.ggml.pre", "default")
    known = {*mapping.GGUF_PRE_TOKENIZER_SPLITS, *_WORDS, *_DIGITS}
    if before not in known:
        raise ModelError(
            f"{header.path} splits text as {before[:60]!r} does before its tokens are looked up, which is not"
            f" known to transformers {transformers.__version__}.",
            f"Known: {', '.join(sorted(known))}.",
        )
    header.texts(_KEYS["merges"])
    vocabulary = {token: number for number, token in enumerate(found["tokens"])}
    built = GPT2Tokenizer(vocab=vocabulary, merges=mapping.get_merges(found))
    backend = mapping.add_gguf_special_tokens(built, found).backend_tokenizer
    if before in _DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(False)])
    else:
        mapping.set_split_regex(built, {"pre_tokenizer_type": before})
    return built.backend_tokenizer


def _pieces(header: Header, found: dict[str, Any]) -> Any:
    if "merges" not in found and len(header.numbers(_KEYS["scores"])) != len(found["tokens"]):
        raise damaged(header.path, "its vocabulary has neither merges nor a score for each token")
    backend, _ = convert_gguf_tokenizer(header.architecture, found | {"tokenizer_type": _PIECES})
    if not header.architecture.startswith("gemma"):  # as llama.cpp: a space more, also before another one
        spaced = header.values.get("tokenizer.ggml.add_space_prefix", True) is not False
        blank = normalizers.Replace(" ", "▁")
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), blank]) if spaced else blank
        backend.pre_tokenizer = None
    return backend
