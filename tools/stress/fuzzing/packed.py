"""Packed weights: headers that are damaged, or crafted with the right checksum; tensors that are damaged."""

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from ctypes import string_at
from pathlib import Path
from random import Random
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from fuzzing.mutate import mutated, restructured
from fuzzing.reader import Reader, Violation
from h2o_chat.native.layout import Vector, layout, parts
from h2o_chat.native.packed import open_packed
from h2o_chat.native.packing import packed_for

CONFIG = {
    **{"hidden_size": 40, "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100, "max_position_embeddings": 256},
    **{"tie_word_embeddings": True, "sliding_window": 64, "use_sliding_window": True, "max_window_layers": 1},
}
_FIXED = struct.Struct("<8sIIII")
_ALIGNED = 64


def readers(folder: Path) -> Iterator[Reader]:
    """Those of packed files; a model is made in `folder / packed`."""
    packed = _Packed(folder / "packed")
    yield Reader("packed headers", [packed.whole], packed.headers, share=4, make=_headers)
    yield Reader("packed weights", [packed.whole], packed.weights, share=0.2, make=_weights)


def _headers(rng: Random, examples: Sequence[bytes]) -> bytes:
    """A file with another header: bytes changed anywhere, or other values under a checksum that is right."""
    raw = rng.choice(examples)
    text, data = _split(raw)
    start = len(raw) - len(data)
    match rng.randrange(3):
        case 0:
            return mutated(rng, [raw[:start]]) + data
        case 1:
            at = rng.randrange(start)
            return raw[:at] + rng.randbytes(rng.choice((1, 1, 4, 8))) + raw[at + 1 :]
        case _:
            about = restructured(rng, json.loads(text))
            text = json.dumps(about).encode() if rng.random() < 0.8 else mutated(rng, [text])
    head = _FIXED.pack(raw[:8], 1, len(text), zlib.crc32(text), 0) + text
    return head.ljust(-(-len(head) // _ALIGNED) * _ALIGNED, b"\0") + data


def _weights(rng: Random, examples: Sequence[bytes]) -> bytes:
    """A file whose tensors are damaged, or which is cut or longer."""
    raw = bytearray(rng.choice(examples))
    start = len(raw) - len(_split(bytes(raw))[1])
    match rng.randrange(4):
        case 0:
            return bytes(raw[: rng.randrange(start, len(raw))])
        case 1:
            return bytes(raw) + rng.randbytes(rng.choice((1, 64, 4096)))
        case _:
            for _ in range(rng.choice((1, 1, 3, 50))):
                at = rng.randrange(start, len(raw))
                raw[at] ^= 1 << rng.randrange(8)
            return bytes(raw)


def _split(raw: bytes) -> tuple[bytes, bytes]:
    """The JSON of the header, and what follows the header."""
    length = _FIXED.unpack_from(raw)[2]
    text = raw[_FIXED.size : _FIXED.size + length]
    return text, raw[-(-(_FIXED.size + length) // _ALIGNED) * _ALIGNED :]


class _Packed:
    """A tiny model, packed."""

    def __init__(self, folder: Path) -> None:

        torch.manual_seed(0)
        Qwen2ForCausalLM(Qwen2Config(**CONFIG)).save_pretrained(folder)
        self.folder = folder
        opened = packed_for(folder, 4, lambda *_: None)
        self.path, self.whole = opened.path, opened.path.read_bytes()

    def headers(self, raw: bytes) -> None:
        """Opened with whatever header it has; every tensor of one that is taken is read."""
        path = self.folder / "file.h2o"
        path.write_bytes(raw)
        opened = open_packed(path, verify=True)
        sizes = {place.name: place.bytes for place in layout(opened.frame)}
        for part in parts(opened.frame):
            if isinstance(part, Vector):
                string_at(opened.vector(part.name), sizes[part.name])
                continue
            [matrix] = opened.matrices(part.name)
            string_at(matrix.weights, sizes[f"{part.name}.weights"])
            string_at(matrix.scales, sizes[f"{part.name}.scales"])

    def weights(self, raw: bytes) -> None:
        """Opened where the program looks for it: it is whole afterwards, and that it was not is said."""
        before = self.path.stat().st_ino
        self.path.write_bytes(raw)
        opened = packed_for(self.folder, 4, lambda *_: None)
        if self.path.read_bytes() != self.whole and not _differ_in_padding(raw, self.whole, opened):
            raise Violation("what is damaged was believed")
        if (self.path.stat().st_ino != before) != bool(opened.note):
            raise Violation("it was packed again without a word, or only said to be")


def _differ_in_padding(raw: bytes, whole: bytes, opened: Any) -> bool:
    """Whether two files have the same tensors: what lies between them is read by nobody."""
    start = len(whole) - len(_split(whole)[1])
    places = [(start + one.offset, start + one.offset + one.bytes) for one in layout(opened.frame)]
    return len(raw) == len(whole) and all(raw[a:b] == whole[a:b] for a, b in places)
