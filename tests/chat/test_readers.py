"""Files and names that readers once stumbled over, as `tools/stress/fuzz.py` found them."""

import json
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from storing import created

from h2o_chat.base.config import data_folder
from h2o_chat.base.errors import LONGEST_CHARACTERS, H2OChatError, ModelError, StoreError, UsageError
from h2o_chat.chat.templates.chat_template import choose
from h2o_chat.lab.shared.lab_texts import read_texts
from h2o_chat.lab.shared.policy_variant import PolicyVariant
from h2o_chat.models.hub_cache import repositories
from h2o_chat.models.load import check_family
from h2o_chat.models.load_tokenizer import load_tokenizer
from h2o_chat.models.model_files import check_weights, read_config
from h2o_chat.models.resolve import look_up
from h2o_chat.store import Store
from h2o_chat.tui.transcript.markdown import SLOW, render

DEEP = "[" * 100_000
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
TENSOR = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def test_no_error_is_obeyed_by_a_terminal() -> None:
    error = H2OChatError("No \x1b]0;x\x07\x9b\r\u202e\ttab\n", "é \u2066")
    assert error.message == r"No \x1b]0;x\x07\x9b\x0d\u202e\ttab\n"
    assert error.hint == "é \\u2066"
    assert str(error) == f"{error.message} {error.hint}"


def test_no_error_is_longer_than_can_be_read() -> None:
    error = H2OChatError("begin" + "x" * 10**6 + "end")
    assert len(error.message) <= LONGEST_CHARACTERS + 3
    assert error.message.startswith("begin")
    assert error.message.endswith("end")


@pytest.mark.parametrize(
    "name",
    [
        "~nobody-here/x",
        "x" * 300,
        "x/" * 3000,
        "\0",
        "~\0",
        "x" * 300 + "/\0",
        "x/" + "y" * 250,
        "\x1b[2J\udc9b",
        "\r",
    ],
)
def test_names_of_models(name: str) -> None:
    with pytest.raises(ModelError) as caught:
        look_up(name)
    assert "\x1b" not in str(caught.value)


def test_the_home_of_nobody() -> None:
    with pytest.raises(UsageError, match="~nobody-here"):
        data_folder(Path("~nobody-here/x"))


def weights(folder: Path, header: Any) -> None:
    raw = header.encode() if isinstance(header, str) else json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(24))


@pytest.mark.parametrize(
    "header",
    [
        DEEP,
        [],
        {"a": None},
        {"a": {"shape": [2, 3], "data_offsets": [0, 24]}},
        {"a": TENSOR | {"dtype": []}},
        {"a": TENSOR | {"dtype": "F99"}},
        {"a": TENSOR | {"dtype": "\ud800"}},
        {"a": TENSOR | {"shape": 6}},
        {"a": TENSOR | {"shape": ["xxxxxxxx", 2**40]}},
        {"a": TENSOR | {"shape": [2**60]}},
        {"a": TENSOR | {"shape": [-1]}},
        {"a": TENSOR | {"shape": [2] * 10_000}},
        {"a": TENSOR | {"data_offsets": ["0", "24"]}},
        {"a": TENSOR | {"data_offsets": [25, 24]}},
    ],
    ids=lambda header: str(header)[:60],
)
def test_headers_of_weights(tmp_path: Path, header: Any) -> None:
    weights(tmp_path, header)
    with pytest.raises(ModelError, match=r"model\.safetensors is damaged: "):
        check_weights(tmp_path)


@pytest.mark.parametrize(
    "places",
    [([0, 24], [0, 24]), ([0, 24], [12, 36]), ([0, 24], [28, 52]), ([4, 28], [28, 52])],
)
def test_tensors_that_do_not_lie_one_behind_the_other(tmp_path: Path, places: tuple[list[int], ...]) -> None:
    raw = json.dumps({n: TENSOR | {"data_offsets": p} for n, p in zip("ab", places, strict=True)}).encode()
    size = max(end for _, end in places)
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(size))
    with pytest.raises(ModelError, match="is damaged: invalid offset for tensor"):
        check_weights(tmp_path)


@pytest.mark.parametrize("name", ["num_hidden_layers", "n_layer", "n_layers", "num_layers"])
def test_more_layers_than_any_model_has(tmp_path: Path, name: str) -> None:
    """transformers makes a list of them, while it reads the configuration: memory grew without a word."""
    for about in ({name: 10**9}, {"text_config": {name: 10**9}}):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2"} | about))
        with pytest.raises(ModelError, match=f"{name} is 1,000,000,000"):
            read_config(tmp_path)


@pytest.mark.parametrize("shard", ["../model.safetensors", "/etc/passwd", 3, [], "a\0", "x" * 300, ""])
def test_shards_lie_beside_their_index(tmp_path: Path, shard: Any) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    weights(tmp_path, {"a": TENSOR})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": shard}}))
    with pytest.raises(ModelError, match="no file beside it"):
        check_weights(folder)


@pytest.mark.parametrize("text", [DEEP, "\ufeff", "9" * 5000, '{"a":' * 50_000])
def test_configurations_of_models(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError):
        read_config(tmp_path)


@pytest.mark.parametrize(
    "more",
    [
        {"model_type": ["llama"]},
        {"model_type": {}},
        {"model_type": 3},
        {"model_type": "gemma3_text", "dtype": "\ud800"},
        {"architectures": 3},
        {"architectures": {"a": 1}},
        {"architectures": ["\x1b[2J"], "auto_map": {}, "model_type": "theirs"},
        {"layer_types": [[]], "num_hidden_layers": 1},
        {"quantization_config": "x"},
    ],
    ids=str,
)
def test_families(tmp_path: Path, more: dict[str, Any]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | more))
    with pytest.raises(ModelError) as caught:
        check_family(tmp_path)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("commit", [b"\xff", b"../../x", b"x" * 10_000, b"", b"\0"])
def test_references_of_the_hubs_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: bytes) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    refs = tmp_path / "models--org--name" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_bytes(commit)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "config.json").write_text("{}")
    (tmp_path / "x" / "model.safetensors").write_text("")
    (found,) = repositories()
    assert found.folder is None


def test_variants() -> None:
    with pytest.raises(UsageError, match="says nothing"):
        PolicyVariant.parse("h2o:sinks=" + "9" * 5000)


def test_texts(tmp_path: Path) -> None:
    (tmp_path / "texts.json").write_text(DEEP)
    with pytest.raises(UsageError, match="cannot be read"):
        read_texts(tmp_path / "texts.json")
    with pytest.raises(UsageError, match="larger than 256 MiB"):
        read_texts(Path("/dev/zero"))
    (tmp_path / "texts.json").write_text('["\\ud800"]')
    assert read_texts(tmp_path / "texts.json") == ["?"], "which a tokenizer takes"


def test_a_template_that_fails_is_refused() -> None:
    """In whatever way: it is a program of the model's."""
    template = "{{ 1 // 0 }}"
    tokenizer = SimpleNamespace(
        chat_template=template, get_chat_template=lambda _: template, special_tokens_map={}
    )
    with pytest.raises(ModelError, match=r"template fails: .*by zero"):
        choose(tokenizer, "auto").first(None, "Hi")
    with pytest.raises(UsageError, match="does not take this system prompt"):
        choose(tokenizer, "auto").first("Be kind.", "Hi")


def test_a_tokenizer_that_fails_when_it_is_used(shared_models: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((shared_models / "stories260k" / name).read_bytes())
    load_tokenizer(tmp_path, 512)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"model_max_length": {}}))
    with pytest.raises(ModelError, match=r"The tokenizer in .* cannot be loaded"):
        load_tokenizer(tmp_path, 512)


@pytest.mark.parametrize("damage", ["{", "7", b"\xff", "[" * 100_000, None])
def test_damaged_fields_of_a_database(store: Store, damage: Any) -> None:
    with store.claim(created(store, "m", {})) as writer:
        writer.run({"model": "m"})
        if damage is not None:
            store._database.rows("UPDATE runs SET session = ?", damage)
            store._database.rows("UPDATE conversations SET settings = ?", damage)
        assert store.last_run(writer.conversation) == ({"model": "m"} if damage is None else {})
        if damage in (None, "7"):
            assert store.settings(writer.conversation) == {}
        else:
            with pytest.raises(StoreError, match="are damaged"):
                store.settings(writer.conversation)


@pytest.mark.parametrize("language", sorted(SLOW))
def test_code_that_would_stop_the_screen(language: str) -> None:
    began = time.process_time()
    assert "x" in render(f"```{language.upper()}\n" + "\n " * 4000 + "x\n```").plain
    assert time.process_time() - began < 2
