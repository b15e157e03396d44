"""GGUF files that are damaged, or hold other values and tensors than they should; stores of ollama."""

import os
import struct
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from fuzzing.mutate import ODD_BYTES, ODD_VALUES, encoded, mutated
from fuzzing.reader import Reader, Violation, complain, refuse_controls
from h2o_chat.base.config import Settings
from h2o_chat.base.errors import H2OChatError
from h2o_chat.models import ollama, resolve
from h2o_chat.models.gguf_tokenizer import require_template
from h2o_chat.models.load import check_family
from h2o_chat.models.load_tokenizer import load_tokenizer
from h2o_chat.models.obtain import checked
from h2o_chat.native import gguf_weights
from h2o_chat.native.gguf_frame import plain_frame
from h2o_chat.native.probing import frame_of

_HIDDEN, _INNER, _HEAD, _TOKENS = 64, 96, 32, 64
_Q8_0, _F32, _F16, _Q4_0 = 8, 0, 1, 2
_BYTES = {_Q8_0: (32, 34), _Q4_0: (32, 18), _F32: (1, 4), _F16: (1, 2)}
_TYPES = dict(enumerate(("<B", "<b", "<H", "<h", "<I", "<i", "<f", "<?"))) | {10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9

Values = list[tuple[str, int, Any]]
"""Key, type and value; an array's is (type of its elements, elements)."""
Tensors = list[tuple[str, tuple[int, ...], int]]
"""Name, sides as torch has them, type."""


def readers(folder: Path) -> Iterator[Reader]:
    """Those of GGUF files, which are made in `folder / gguf`, and of ollama's store."""
    gguf_weights.LARGE_PAGES_AFTER_S = 0.0  # thousands of threads would wait for it
    (folder / "gguf").mkdir()
    opened = partial(_opened, folder / "gguf" / "model.gguf")
    whole = [_file(Random(1), _values(kind), _tensors(kind)) for kind in ("llama", "qwen3", "smollm3")]
    yield Reader("gguf files", whole, opened, share=0.5, make=_damaged)
    yield Reader("ollama stores", encoded(_MANIFEST), _Store(folder / "store", whole[0]))


def _values(kind: str) -> Values:
    words = ["<|end|>", *map(chr, range(ord("!"), ord("!") + _TOKENS - 2)), "!!"]
    numbers = {
        **{"context_length": 128, "embedding_length": _HIDDEN, "block_count": 2},
        "feed_forward_length": _INNER,
        **{"attention.head_count": 2, "attention.head_count_kv": 1, "attention.key_length": _HEAD},
    }
    return [
        ("general.architecture", _STRING, kind),
        *((f"{kind}.{name}", 4, number) for name, number in numbers.items()),
        (f"{kind}.attention.layer_norm_rms_epsilon", 6, 1e-5),
        (f"{kind}.rope.freq_base", 6, 10000.0),
        ("tokenizer.ggml.model", _STRING, "gpt2"),
        ("tokenizer.ggml.pre", _STRING, "qwen2"),
        ("tokenizer.ggml.tokens", _ARRAY, (_STRING, words)),
        ("tokenizer.ggml.token_type", _ARRAY, (5, [3] + [1] * (_TOKENS - 1))),
        ("tokenizer.ggml.merges", _ARRAY, (_STRING, ["! !"])),
        ("tokenizer.ggml.eos_token_id", 4, 0),
        ("tokenizer.chat_template", _STRING, "{% for m in messages %}{{ m.content }}{% endfor %}"),
    ]


def _tensors(kind: str) -> Tensors:
    found: Tensors = [
        ("token_embd.weight", (_TOKENS, _HIDDEN), _Q8_0),
        ("output_norm.weight", (_HIDDEN,), _F32),
    ]
    for number in range(2):
        layer = f"blk.{number}."
        found += [
            (f"{layer}attn_norm.weight", (_HIDDEN,), _F32),
            (f"{layer}attn_q.weight", (2 * _HEAD, _HIDDEN), _Q4_0),
            (f"{layer}attn_k.weight", (_HEAD, _HIDDEN), _Q4_0),
            (f"{layer}attn_v.weight", (_HEAD, _HIDDEN), _F16),
            (f"{layer}attn_output.weight", (_HIDDEN, 2 * _HEAD), _Q8_0),
            (f"{layer}ffn_norm.weight", (_HIDDEN,), _F32),
            (f"{layer}ffn_gate.weight", (_INNER, _HIDDEN), _Q4_0),
            (f"{layer}ffn_up.weight", (_INNER, _HIDDEN), _Q8_0),
            (f"{layer}ffn_down.weight", (_HIDDEN, _INNER), _Q8_0),
        ]
        if kind == "qwen3":
            found += [(f"{layer}attn_{one}_norm.weight", (_HEAD,), _F32) for one in "qk"]
    return found


def _file(rng: Random, values: Values, tensors: Tensors) -> bytes:
    """A whole file; its numbers are small: bytes that are fp16 and fp32 below 1 in any place."""
    table, data = b"", b""
    for name, sides, kind in tensors:
        numbers, length = _BYTES.get(kind, (1, 4))
        count = 1
        for side in sides:
            count *= side
        table += _text(name) + struct.pack(f"<I{len(sides)}Q", len(sides), *reversed(sides))
        table += struct.pack("<IQ", kind, len(data))
        block = bytes(rng.choice((0x11, 0x20, 0x2C)) for _ in range(length))
        data += block * (min(count, 1 << 16) // numbers)
        data += b"\0" * (-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    head += b"".join(
        _text(key) + struct.pack("<I", kind) + _value(kind, value) for key, kind, value in values
    )
    head += table
    return head + b"\0" * (-len(head) % 32) + data


def _text(words: str) -> bytes:
    raw = words.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw


def _value(kind: int, value: Any) -> bytes:
    if kind == _STRING:
        return _text(value)
    if kind == _ARRAY:
        of, elements = value
        return struct.pack("<IQ", of, len(elements)) + b"".join(_value(of, one) for one in elements)
    return struct.pack(_TYPES[kind], value)


def _damaged(rng: Random, examples: Sequence[bytes]) -> bytes:
    """Bytes changed in the header, or anywhere; cut; or whole, with other values and tensors."""
    raw = rng.choice(examples)
    start = len(raw) // 3
    match rng.randrange(5):
        case 0:
            return mutated(rng, [raw[:start]]) + raw[start:]
        case 1:
            found = bytearray(raw)
            for _ in range(rng.choice((1, 1, 3, 50))):
                found[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
            return bytes(found)
        case 2:
            return raw[: rng.randrange(len(raw))]
        case _:
            return _other(rng)


def _other(rng: Random) -> bytes:
    """A file whose parts fit together in form, and not in what they say."""
    kind = rng.choice(("llama", "qwen2", "qwen3", "smollm3", "gemma3", "bert"))
    values, tensors = _values(kind), _tensors(kind)
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(values))
        match rng.randrange(4):
            case 0:
                del values[at]
            case 1:
                values[at] = (values[at][0], *_odd(rng))
            case 2:
                values.append((rng.choice(_MORE).format(kind), *_odd(rng)))
            case _:
                tensors[at % len(tensors)] = _odd_tensor(rng, tensors[at % len(tensors)])
    return _file(rng, values, tensors)


_MORE = (
    *("{}.rope.scaling.type", "{}.rope.scaling.factor", "{}.rope.dimension_count", "general.alignment"),
    *("split.count", "tokenizer.ggml.scores", "tokenizer.ggml.add_space_prefix", "general.name", "x"),
    *("tokenizer.ggml.bos_token_id", "tokenizer.ggml.model", "tokenizer.ggml.eot_token_id"),
    "{}.expert_count",
)


def _odd(rng: Random) -> tuple[int, Any]:
    """A type and a value of it."""
    kind = rng.choice((0, 4, 5, 6, 7, 8, 8, 9, 10, 12))
    if kind == _STRING:
        said = [one for one in ODD_VALUES if isinstance(one, str)] + ["llama", "linear", "yarn", "gpt2"]
        return kind, rng.choice(said).encode("utf-8", "replace").decode()
    if kind == _ARRAY:
        of, value = _odd(rng)
        return (kind, (of, [value] * rng.choice((0, 1, 64, 300)))) if of != _ARRAY else (4, 7)
    if kind in (6, 12):
        return kind, rng.choice((0.0, -1.0, 1e-30, 1e30, float("nan"), float("inf")))
    if kind == 7:
        return kind, rng.random() < 0.5
    most = {0: 255, 4: 2**32 - 1, 5: 2**31 - 1, 10: 2**64 - 1}[kind]
    return kind, rng.choice((0, 1, 2, 3, 31, 33, 64, min(most, 65), min(most, 2**31 - 1), most))


def _odd_tensor(rng: Random, tensor: tuple[str, tuple[int, ...], int]) -> tuple[str, tuple[int, ...], int]:
    name, sides, kind = tensor
    match rng.randrange(4):
        case 0:
            odd = rng.choice(ODD_BYTES)[:60].decode("utf-8", "replace")
            return rng.choice((odd, "rope_freqs.weight", "output.weight", "x")), sides, kind
        case 1:
            return name, tuple(rng.choice((1, 32, side, 2 * side, 2**40)) for side in sides), kind
        case 2:
            return name, (*sides, rng.choice((1, 2, 32))), kind
        case _:
            return name, sides, rng.choice((0, 1, 2, 8, 14, 15, 30, 99))


def _opened(path: Path, raw: bytes) -> None:
    """A file as it is found, described, and laid out in memory."""
    path.write_bytes(raw)
    found = checked(resolve.find(str(path)))
    require_template(Settings(model=str(path)))
    load_tokenizer(found.folder, check_family(found.folder).vocab_size)
    frame = plain_frame(found.folder) or frame_of(found.folder)
    if not isinstance(frame, str):
        weights = gguf_weights.GgufWeights(found.folder, frame)
        weights.begin()
        weights.finish(frame, lambda *_: None)


_MANIFEST = {
    "schemaVersion": 2,
    "layers": [
        {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{digit * 64}", "size": 1000}
        for kind, digit in {"model": "a", "license": "b", "template": "c"}.items()
    ],
}


class _Store:
    """A store whose manifest, or whose names, anybody may have written."""

    def __init__(self, folder: Path, model: bytes) -> None:
        self.folder = folder
        self.manifest = folder / "manifests" / "registry.ollama.ai" / "library" / "tiny" / "latest"
        self.manifest.parent.mkdir(parents=True)
        (folder / "blobs").mkdir()
        for digit, raw in {"a": model, "b": b"\x1b[2J\xff licence", "c": b"{{ .Prompt }}"}.items():
            (folder / "blobs" / f"sha256-{digit * 64}").write_bytes(raw)

    def __call__(self, raw: bytes) -> None:

        os.environ["OLLAMA_MODELS"] = str(self.folder)
        self.manifest.write_bytes(raw)
        for one in ollama.installed():
            refuse_controls(f"{one.name} {one.wrong}", "a row")
        name = raw[:80].decode("utf-8", "replace")
        for asked in (f"ollama:{name}", "ollama:tiny"):
            try:
                _, file = ollama.find(asked)
            except H2OChatError as error:
                complain(error)
                if asked == "ollama:tiny":
                    raise
                continue
            if not ollama.is_blob(file) or file.parent != self.folder / "blobs":
                raise Violation(f"{file} is not in the store")
