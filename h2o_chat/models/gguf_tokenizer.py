"""The tokenizer and the chat template of a GGUF file."""

from typing import Any

import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from h2o_chat.base.config import TEMPLATES, Settings
from h2o_chat.base.errors import ModelError, UsageError
from h2o_chat.models.gguf import Header, damaged, header_of
from h2o_chat.models.gguf_config import ENDS
from h2o_chat.models.ollama import is_blob
from h2o_chat.models.resolve import find

_BYTE_LEVEL, _PIECES, _GEMMA4 = "gpt2", "llama", "gemma4"
_SCORES, _MERGES = "tokenizer.ggml.scores", "tokenizer.ggml.merges"
_LONGEST = 1000  # longest token in characters: searching the merges of longer ones would take hours
_CONTROL, _WHOLE = 3, 4
"""Types of tokens: control tokens, and words that are never split (`<think>`)."""
_BLANKS_STAY = ("<s>", "<unk>", "<|endoftext|>")
"""Tokens of phi3 that leave blanks behind them in the text; all others take them in (as in llama.cpp)."""
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}

_WORDS = ("gpt-2", "olmo", "default")  # values of `tokenizer.ggml.pre` that split words as GPT-2 does
_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell")
"""Values that also split off every digit."""
_LLAMA_3 = (
    *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral"),
    *("midm-2.0", "lfm2", "jina-v5-nano", "tekken"),
)
"""Values with which a word of the vocabulary is a token even if no merges lead to it (as in llama.cpp)."""


class GgufTokenizer(transformers.PreTrainedTokenizerFast):  # type: ignore[misc]
    """Takes `built` as it is; from `tokenizer_object` a copy is made, .5 s for 150,000 tokens.

    Attributes:
        begins: texts begin with its start token.
    """

    def __init__(self, built: Tokenizer, begins: bool, **given: Any) -> None:
        self._tokenizer = built
        super().__init__(**given)
        self.begins = begins


def tokenizer_of(header: Header) -> Any:
    """The tokenizer, with the file's chat template if it has one.

    Raises ModelError if the file has no tokenizer, or one of an unknown kind.
    """
    kind = header.text("tokenizer.ggml.model", "none")
    if kind not in (_BYTE_LEVEL, _PIECES, _GEMMA4):
        raise ModelError(
            f"{header.path} has a tokenizer of the kind {kind[:60]!r}, which is not read.",
            f"Known: {_BYTE_LEVEL} (byte-level BPE), {_PIECES} (sentencepiece) and {_GEMMA4}.",
        )
    tokens = header.texts("tokenizer.ggml.tokens")
    if len(set(tokens)) != len(tokens):
        raise damaged(header.path, "its vocabulary holds a token twice")
    if max(map(len, tokens), default=0) > _LONGEST:
        raise damaged(header.path, f"a token of its vocabulary has more than {_LONGEST:,} characters")
    built = (_byte_level if kind == _BYTE_LEVEL else _pieces)(header, tokens)
    kinds = dict(zip(tokens, header.numbers("tokenizer.ggml.token_type"), strict=False))
    control = [token for token in tokens if kinds.get(token) == _CONTROL or token in ENDS]
    bare = header.architecture == "phi3" and kind == _PIECES
    added = [AddedToken(one, normalized=False, rstrip=bare and one not in _BLANKS_STAY) for one in control]
    built.add_special_tokens(added)
    whole = [token for token, one in kinds.items() if one == _WHOLE and token not in ENDS]
    there = [one for one in whole if built.token_to_id(one) is not None]
    built.add_tokens([AddedToken(one, normalized=False, rstrip=bare) for one in there])
    spelled = [one.replace(" ", "▁") for one in whole if one not in there]  # transformers wrote them so
    built.add_tokens(
        [AddedToken(one, normalized=True) for one in spelled if built.token_to_id(one) is not None]
    )
    ids = {name: header.token(f"tokenizer.ggml.{key}_token_id") for name, key in _SPECIAL.items()}
    special = {name: tokens[number] for name, number in ids.items() if number is not None}
    usual = kind == _PIECES or header.text("tokenizer.ggml.pre", "default") in _LLAMA_3  # as in llama.cpp
    return GgufTokenizer(
        built,
        kind == _GEMMA4 or header.values.get("tokenizer.ggml.add_bos_token", usual) is True,
        extra_special_tokens=[one for one in control if one not in special.values()],
        chat_template=header.text("tokenizer.chat_template", "") or None,
        clean_up_tokenization_spaces=False,
        **special,
    )


def require_template(settings: Settings) -> None:
    """Raises UsageError if a GGUF file has no chat template and the settings name none.

    Raises ModelError if there is no such model, or its file is damaged.
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


def _byte_level(header: Header, tokens: list[str]) -> Tokenizer:
    """A byte-level BPE tokenizer. (transformers' GPT2Tokenizer would add tokens that the model lacks.)"""
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    before = header.text("tokenizer.ggml.pre", "default")
    known = {*GGUF_PRE_TOKENIZER_SPLITS, *_WORDS, *_DIGITS}
    if before not in known:
        raise ModelError(
            f"{header.path} splits text as {before[:60]!r} does before its tokens are looked up, which is not"
            f" known to transformers {transformers.__version__}.",
            f"Known: {', '.join(sorted(known))}.",
        )
    whole_words = before in _LLAMA_3
    built = Tokenizer(BPE(vocab=_numbered(tokens), merges=_merges(header), ignore_merges=whole_words))
    built.decoder = decoders.ByteLevel()
    if before in GGUF_PRE_TOKENIZER_SPLITS:
        split = pre_tokenizers.Split(Regex(GGUF_PRE_TOKENIZER_SPLITS[before]), behavior="isolated")
        steps = [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    else:
        digits = [pre_tokenizers.Digits(individual_digits=True)] if before in _DIGITS else []
        steps = [*digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    built.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return built


def _pieces(header: Header, tokens: list[str]) -> Any:
    """A sentencepiece tokenizer, with llama.cpp's space before the text even if there is one already."""
    if header.architecture in ("gemma", "gemma2", "gemma3"):  # theirs differ
        from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer

        given = {"tokenizer_type": _PIECES, "tokens": tokens, "scores": header.numbers(_SCORES)}
        merges_there = {"merges": header.texts(_MERGES)} if _MERGES in header.values else {}
        return convert_gguf_tokenizer(header.architecture, given | merges_there)[0]
    vocabulary, merges = _numbered(tokens), _merges(header)
    if not merges:
        scores = header.numbers(_SCORES)
        if len(scores) != len(tokens):
            raise damaged(header.path, "its vocabulary has neither merges nor a score for each token")
        from transformers.tokenization_utils_base import generate_merges

        merges = generate_merges(vocabulary, dict(zip(tokens, scores, strict=True)))
    unknown = header.token("tokenizer.ggml.unknown_token_id")
    unk = None if unknown is None else tokens[unknown]
    built = Tokenizer(BPE(vocab=vocabulary, merges=merges, unk_token=unk, fuse_unk=True, byte_fallback=True))
    spaced = header.values.get("tokenizer.ggml.add_space_prefix", True) is not False
    blank = normalizers.Replace(" ", "▁")
    built.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), blank] if spaced else [blank])
    back = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    built.decoder = decoders.Sequence([*back, decoders.Strip(" ", 1, 0)] if spaced else back)
    return built


def _numbered(tokens: list[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def _merges(header: Header) -> list[tuple[str, str]]:
    """Pairs of tokens that merge into one, the most important first."""
    if _MERGES not in header.values:
        return []
    pairs = [one.partition(" ") for one in header.texts(_MERGES)]
    return [(first, second) for first, _, second in pairs]
