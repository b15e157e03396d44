"""GGUF files: tokenizer and chat template."""

from pathlib import Path
from typing import Any

import pytest
import transformers
from gguf_files import write
from gguf_tiny import CHANGES, SIZES, folder_of
from test_tokenizer_class import TEXTS

from h2o_chat.base.config import Settings
from h2o_chat.base.errors import ModelError, UsageError
from h2o_chat.chat.templates.chat_template import ModelTemplate, PlainTemplate
from h2o_chat.models import load, load_tokenizer
from h2o_chat.models.gguf import header_of
from h2o_chat.models.gguf_config import config_of
from h2o_chat.models.gguf_tokenizer import require_template, tokenizer_of
from h2o_chat.models.tokenizer_calls import start_of


@pytest.mark.parametrize("name", ["pilot-chat", "stories3m", "stories260k"])
def test_a_tokenizer_makes_the_same_tokens(name: str, shared_models: Path, tmp_path: Path) -> None:
    folder = shared_models / name
    template = folder / "chat_template.jinja"
    words = template.read_text("utf-8") if template.is_file() else None
    path = write(folder, tmp_path / "x.gguf", "F16", tokenizer=folder, template=words)
    ours = load_tokenizer.load_tokenizer(path, load.check_family(path).vocab_size)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    for said in (*TEXTS, "", "x" * 50):
        ids = theirs(said, add_special_tokens=False)["input_ids"]
        assert ours(said, add_special_tokens=False)["input_ids"] == ids
        assert ours.decode(ids) == theirs.decode(ids)
    assert (ours.bos_token, ours.eos_token) == (theirs.bos_token, theirs.eos_token)
    assert set(theirs.all_special_ids) - {theirs.pad_token_id} <= set(ours.all_special_ids)
    assert ours.chat_template == theirs.chat_template
    if words:
        said_to = [{"role": "user", "content": "Hello"}]
        assert (
            ours.apply_chat_template(said_to, add_generation_prompt=True)["input_ids"]
            == (theirs.apply_chat_template(said_to, add_generation_prompt=True)["input_ids"])
        )


def test_control_tokens_outside_the_alphabet(llama: Path, tmp_path: Path) -> None:
    """In a byte-level vocabulary they are spelled literally, like DeepSeek's."""
    words = ["<|end|>", "<｜User｜>", *"abcdefgh", "ab"] + [f"[{number}]" for number in range(309)]
    values = {
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [3, 3] + [1] * 318,
        "tokenizer.ggml.merges": ["a b"],
    }
    path = write(llama, tmp_path / "x.gguf", "F32", values=values)
    tokenizer = load_tokenizer.load_tokenizer(path, load.check_family(path).vocab_size)
    assert tokenizer("<｜User｜>abc<|end|>", add_special_tokens=False)["input_ids"] == [1, 10, 4, 0]
    assert tokenizer.decode([1, 10], skip_special_tokens=True) == "ab"


@pytest.mark.parametrize(
    ("before", "ids"), [("llama-bpe", [5]), ("tekken", [5]), ("qwen2", [4, 3]), ("dbrx", [4, 3])]
)
def test_words_that_no_merges_make(before: str, ids: list[int], llama: Path, tmp_path: Path) -> None:
    """588 words of llama 3 are such."""
    values = {
        "tokenizer.ggml.pre": before,
        "tokenizer.ggml.tokens": ["<|end|>", *"abc", "ab", "abc"] + [f"[{number}]" for number in range(314)],
        "tokenizer.ggml.merges": ["a b"],
    }
    path = write(llama, tmp_path / "x.gguf", "F32", values=values)
    tokenizer = load_tokenizer.load_tokenizer(path, load.check_family(path).vocab_size)
    assert tokenizer("abc", add_special_tokens=False)["input_ids"] == ids


@pytest.mark.parametrize(
    ("before", "said", "begins"),
    [
        *(("llama-bpe", None, True), ("llama-bpe", False, False), ("smollm", None, False)),
        *(("smollm", False, False), ("qwen2", None, False), ("gpt-2", True, True)),
    ],
)
def test_the_start_token_stands_where_the_file_says_so(
    before: str, said: bool | None, begins: bool, llama: Path, tmp_path: Path
) -> None:
    values = {"pre": before, "add_bos_token": said, "bos_token_id": 7}
    values = {f"tokenizer.ggml.{key}": value for key, value in values.items()}
    tokenizer = tokenizer_of(header_of(write(llama, tmp_path / "x.gguf", "F32", values=values)))
    assert PlainTemplate(tokenizer).first(None, "!").ids == [7, 1][not begins :]


def test_ends_are_control_tokens_by_their_names(llama: Path, tmp_path: Path) -> None:
    """Older files name `</s>` as the end alone, and the end of a turn as a normal or a user's token."""
    words = ["</s>", "<|im_end|>", "<end_of_turn>", *"<|im_end>", "<|"]
    words += [f"[{number}]" for number in range(307)]
    values = {
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [3, 1, 4] + [1] * 317,
        "tokenizer.ggml.merges": ["< |"],
    }
    path = write(llama, tmp_path / "x.gguf", "F32", values=values)
    assert config_of(header_of(path))["eos_token_id"] == [0, 1, 2]
    tokenizer = load_tokenizer.load_tokenizer(path, load.check_family(path).vocab_size)
    assert tokenizer("im<|im_end|><end_of_turn>", add_special_tokens=False)["input_ids"] == [5, 6, 1, 2]
    assert tokenizer.decode([5, 1, 2], skip_special_tokens=True) == "i"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"tokenizer.ggml.model": "rwkv"}, "of the kind 'rwkv'"),
        ({"tokenizer.ggml.pre": "klingon"}, "splits text as 'klingon' does"),
        ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.merges": None}, "neither merges nor a score"),
        ({"tokenizer.ggml.tokens": ["a"] * 320}, "holds a token twice"),
        ({"tokenizer.ggml.merges": ["a b c"]}, "cannot be loaded"),
        ({"tokenizer.ggml.tokens": ["a" * 1001]}, "more than 1,000 characters"),
        ({"tokenizer.ggml.merges": 7}, "a list of texts is needed"),
        (
            {"tokenizer.ggml.tokens": ["!", "!!", *map(str, range(398))]},
            "80 tokens beyond the model's 320",
        ),
    ],
)
def test_a_damaged_tokenizer(values: dict[str, Any], said: str, llama: Path, tmp_path: Path) -> None:
    path = write(llama, tmp_path / "x.gguf", "F32", values=values)
    with pytest.raises(ModelError, match=said):
        load_tokenizer.load_tokenizer(path, load.check_family(path).vocab_size)


def test_without_a_chat_template_one_is_asked_for(file: Path, llama: Path, tmp_path: Path) -> None:
    require_template(Settings(model=str(file)))
    bare = str(write(llama, tmp_path / "bare.gguf", "F32"))
    require_template(Settings(model=bare, template="plain"))
    with pytest.raises(UsageError, match=r"without a chat template\. .*chatml; or plain"):
        require_template(Settings(model=bare))
    require_template(Settings(model=str(llama)))


def pieces_file(family: str, folder: Path, words: list[str], kinds: list[int], **values: Any) -> Path:
    """A file of a sentencepiece vocabulary that begins with these words, and has all letters and bytes."""
    words = [*words, "▁", *"abcdefghijklmnopqrstuvwxyz", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [*kinds, *[1] * 27, *[6] * 256]
    kinds += [1] * (SIZES["vocab_size"] - len(words))
    words += [f"[{number}]" for number in range(SIZES["vocab_size"] - len(words))]
    given = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.scores": [0.0] * len(words),
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    model = folder_of(family, folder / "model", **CHANGES.get(family, {}))
    return write(model, folder / "x.gguf", "F32", values=given | values)


def test_phi3_takes_in_the_blanks_behind_its_marks(tmp_path: Path) -> None:
    words = ["<unk>", "<s>", "</s>", "<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>"]
    template = "{% for one in messages %}<|{{ one.role }}|>\n{{ one.content }}<|end|>\n{% endfor %}"
    given = {"tokenizer.chat_template": template + "<|assistant|>\n", "tokenizer.ggml.eos_token_id": 6}
    path = pieces_file("phi3", tmp_path, words, [2, 3, 4, 3, 3, 3, 3], **given)
    tokenizer = load_tokenizer.load_tokenizer(path, load.check_family(path).vocab_size)
    for text, said in (
        ("<|user|>\nhi<|end|>\n<|assistant|>\n", "<|user|> ▁ h i <|end|> <|assistant|>"),
        ("</s>\n hi", "</s> ▁ h i"),
        ("<s> hi<|endoftext|>\n", "<s> ▁ ▁ h i <|endoftext|> ▁ <0x0A>"),
    ):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.convert_ids_to_tokens(ids) == said.split()
    for text in ("hi", "<s>hi"):  # a special token in it: the template is tokenised in pieces
        ids = ModelTemplate(tokenizer).first(None, text).ids
        assert tokenizer.decode(ids) == f"<|user|> {text}<|end|><|assistant|>"
        assert [words.index(one) for one in ("<|user|>", "<|end|>", "<|assistant|>")] == [
            one for one in ids if one < len(words)
        ]


@pytest.mark.parametrize("architecture", ["llama", "phi3", "internlm2", "starcoder2", "gemma4"])
@pytest.mark.parametrize("prefix", [True, False])
def test_spaces_in_front_are_kept(architecture: str, prefix: bool, tmp_path: Path) -> None:
    more = {"general.architecture": architecture, "tokenizer.ggml.add_space_prefix": prefix}
    more |= {"tokenizer.ggml.bos_token_id": 1}
    tokenizer = tokenizer_of(header_of(pieces_file("llama", tmp_path, ["<unk>", "<s>"], [2, 3], **more)))
    assert start_of(tokenizer) == [1]
    for text in ("two", " two", "  two", "   two  words ", "é\n x"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.convert_ids_to_tokens(ids)[0].startswith("▁") == (prefix or text[0] == " ")
        assert tokenizer.decode(ids) == text


def test_runs_of_spaces_are_tokens_of_the_model(tmp_path: Path) -> None:
    """gemma's files hold them as they are, and transformers spells their spaces as ▁."""
    words = ["<unk>", "<eos>", "<bos>", "  ", "   "]
    path = pieces_file("gemma3_text", tmp_path, words, [2, 3, 3, 4, 4])
    tokenizer = load_tokenizer.load_tokenizer(path, load.check_family(path).vocab_size)
    ids = tokenizer("a  b   c d", add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["a", "▁▁", "b", "▁▁▁", "c", "▁", "d"]
    assert [ids[1], ids[3]] == [3, 4]
    assert tokenizer.decode(ids) == "a  b   c d"
