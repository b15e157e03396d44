"""Folders of models: what a stranger published, or what is left of a download."""

import json
import shutil
import struct
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from fuzzing.mutate import encoded, mutated
from fuzzing.reader import Reader, refuse_controls
from h2o_chat.base.config import Sampling, Settings
from h2o_chat.chat.conversation.chat import Chat
from h2o_chat.chat.templates.chat_template import choose
from h2o_chat.events.events import to_json
from h2o_chat.lab.shared.shapes import byte_tokenizer
from h2o_chat.models.choices import stored_quantization
from h2o_chat.models.fits import estimate, sizes_of
from h2o_chat.models.hub_cache import cached, repositories
from h2o_chat.models.load import check_family
from h2o_chat.models.load_tokenizer import load_tokenizer
from h2o_chat.models.model_files import StoredWeights, check_weights, read_config
from h2o_chat.remote.engine_here import engine_here

CONFIG: dict[str, Any] = {
    **{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 258, "hidden_size": 16},
    **{"intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1},
    **{"max_position_embeddings": 64, "bos_token_id": 256, "eos_token_id": 257, "tie_word_embeddings": False},
    **{"rms_norm_eps": 1e-5, "dtype": "float32"},
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}
TEMPLATE = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}<s>assistant: "
_OTHERS = (
    CONFIG | {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
    CONFIG | {"model_type": "gemma3_text", "layer_types": ["sliding_attention", "full_attention"]},
    CONFIG | {"auto_map": {"AutoConfig": "code.py"}, "model_type": "theirs", "architectures": ["\x1b[2J"]},
    {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "architectures": ["GPT2LMHeadModel"]},
)


def make(folder: Path) -> None:
    """Writes a whole model with random weights, of a few kilobytes."""

    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**CONFIG)).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    made = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(made | {"chat_template": TEMPLATE}))
    (folder / "chat_template.jinja").unlink(missing_ok=True)


def readers(folder: Path) -> Iterator[Reader]:
    """Those of model folders; `make` has written a whole one in `folder / here`."""
    here = folder / "here"
    broken, sharded, tokenizer = (folder / name for name in ("broken", "sharded", "tokenizer"))
    for one in (broken, sharded, tokenizer):
        one.mkdir()
    for name in ("one", "two"):
        (sharded / f"{name}.safetensors").write_bytes(_with_header({"a": _TENSOR}))
    template, generation, models = (
        shutil.copytree(here, folder / name) for name in ("template", "generation", "models")
    )
    about = json.loads((here / "tokenizer_config.json").read_text())
    del about["chat_template"]  # it is in a file of its own
    (template / "tokenizer_config.json").write_text(json.dumps(about))

    configs, ends = encoded(CONFIG, *_OTHERS), encoded(*_GENERATION)
    yield Reader("configs", configs, partial(_config, broken), share=2)
    examples = [(here / "model.safetensors").read_bytes(), _with_header({"a": _TENSOR})]
    yield Reader("weights", examples, partial(_read_weights, broken), share=3, make=_weights)
    index = b'{"metadata": {}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}'
    yield Reader("indexes", [index], partial(_index, sharded))
    yield Reader("families", configs, partial(_family, broken), share=1)
    files = [(here / name).read_bytes() for name in _TOKENIZER]
    files += [b'{"chat_template": %s}' % one for one in encoded(*_TEMPLATES)]
    yield Reader("tokenizers", files, partial(_tokenizer, tokenizer, here), share=0.5)
    templates = [one.encode() for one in _TEMPLATES]
    yield Reader("templates", templates, partial(_template, template), share=0.5)
    opened = partial(_opened, generation / "generation_config.json")
    yield Reader("generation", ends, opened, share=0.3)
    yield Reader("models", configs[:1], partial(_opened, models / "config.json"), share=0.3)
    commit = b"0123456789abcdef0123456789abcdef01234567"
    yield Reader("cached models", [commit, b"main\n", b"../../x"], _Cached(folder / "hub"))


_TOKENIZER = ("tokenizer_config.json", "tokenizer.json")
_TENSOR = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
_TEMPLATES = (
    TEMPLATE,
    "{{ bos_token }}{{ messages[0].content }}{{ raise_exception('no') }}",
    "{% if messages[0].role == 'system' %}{{ 1 / 0 }}{% endif %}{{ messages | tojson }}",
    "{% for i in range(99999) %}{{ messages[0]['content'][i] }}{% endfor %}",
)
_GENERATION = (
    {"eos_token_id": [257, 256], "bos_token_id": 256, "do_sample": True, "temperature": 0.6, "top_p": 0.9},
    {"eos_token_id": 257, "pad_token_id": 0, "max_new_tokens": 20, "suppress_tokens": [1], "top_k": None},
    {"_from_model_config": True, "transformers_version": "5.0.0", "cache_implementation": "static"},
)


def _with_header(header: Any, data: bytes = bytes(24)) -> bytes:
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def _weights(rng: Random, examples: Sequence[bytes]) -> bytes:
    """A safetensors file with another header, whose length is right, or one that is broken somewhere."""
    raw = rng.choice(examples)
    length = struct.unpack("<Q", raw[:8])[0]
    if rng.random() < 0.3:
        return mutated(rng, [raw])
    header = mutated(rng, [raw[8 : 8 + length]])
    return struct.pack("<Q", len(header)) + header + raw[8 + length :]


def _config(folder: Path, raw: bytes) -> None:
    (folder / "config.json").write_bytes(raw)
    read_config(folder)


def _read_weights(folder: Path, raw: bytes) -> None:
    (folder / "model.safetensors").write_bytes(raw)
    weights = check_weights(folder)
    f"{weights.parameters:,} {weights.bytes:,} {weights.dtype}".encode()


def _index(folder: Path, raw: bytes) -> None:
    (folder / "model.safetensors.index.json").write_bytes(raw)
    check_weights(folder)


def _family(folder: Path, raw: bytes) -> None:
    """Tiny shapes only: nothing is built, but what is described is looked at."""
    (folder / "config.json").write_bytes(raw)
    config = check_family(folder)
    stored_quantization(config)
    estimate(sizes_of(config), StoredWeights(1000, "F32", 4000), "nf4", 4, 64, as_stored=False)


def _asked(folder: Path) -> None:
    """Loads the tokenizer, and looks what its chat template makes of messages."""
    template = choose(load_tokenizer(folder, CONFIG["vocab_size"]), "auto")
    template.first(None, "Hi")
    template.first("Be kind.", "Hi")
    template.later("Go on.")


def _tokenizer(folder: Path, here: Path, raw: bytes) -> None:
    """One file of a tokenizer is changed, the other is that of `here`."""
    changed = "tokenizer.json" if b'"version"' in raw[:300] else "tokenizer_config.json"
    for name in _TOKENIZER:
        (folder / name).write_bytes(raw if name == changed else (here / name).read_bytes())
    _asked(folder)


def _template(folder: Path, raw: bytes) -> None:
    (folder / "chat_template.jinja").write_bytes(raw)
    _asked(folder)


def _opened(file: Path, raw: bytes) -> None:
    """A whole model with one file changed, as it is opened and asked for an answer."""
    file.write_bytes(raw)
    read_config(file.parent)
    settings = Settings(model=str(file.parent), budget=12, chunk=4, seed=1, threads=1)
    chat = Chat(engine_here(settings, lambda *_: None), settings)
    for event in chat.send("Hi", Sampling(max_tokens=2)):
        to_json(event)


class _Cached:
    """The cache of the hub, whose files anybody may have written."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "models--org--name"
        self.folder = self.root / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
        self.folder.mkdir(parents=True)
        (self.root / "refs").mkdir()
        (self.folder / "config.json").write_text("{}")
        (self.folder / "model.safetensors").write_bytes(b"")

    def __call__(self, raw: bytes) -> None:
        (self.root / "refs" / "main").write_bytes(raw)
        for one in [*repositories(), cached("org/name")]:
            assert one is not None
            refuse_controls(one.repository, "a name")
            if one.folder is not None and self.root not in one.folder.resolve().parents:
                raise AssertionError(f"{one.folder} is outside of {self.root}")
