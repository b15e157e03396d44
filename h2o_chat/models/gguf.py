"""Reads the header of a GGUF file: values about the model, and the place of each tensor. Strict; no torch.

Format (github.com/ggml-org/ggml/blob/master/docs/gguf.md), all little-endian:

    "GGUF", u32 version, u64 tensors, u64 values
    values:  key, u32 type, value             strings: u64 bytes, UTF-8; arrays: u32 type, u64 count, elements
    tensors: name, u32 dimensions, u64 each (the fastest first), u32 type, u64 offset
    zeros up to `general.alignment`, the tensors' data

Types of tensors and their dequantisation come from the package gguf. Its reader of headers is not used: it
makes several objects for every token of the vocabulary (17 s and .7 GB for llama 3, here .3 s) and trusts
every count in the file.
"""

import os
import re
import struct
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, prod
from pathlib import Path
from typing import Any, BinaryIO

from h2o_chat.base.errors import ModelError

SUFFIX = ".gguf"
MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_HEADER_BYTES = 128 << 20
"""The largest vocabularies take 15 MB."""
MOST_PARTS = 1000
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")
_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
"""The name of a file that is not the first part of its model."""
_MOST_NAME_BYTES = 1 << 10
_MOST_SIDE = 1 << 40
_LIKELY_TEXT_BYTES = 64  # a token of a vocabulary with its length takes fewer

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
"""`struct` formats by type number; 7 is a boolean."""
_BOOL, _STRING, _ARRAY = 7, 8, 9


@dataclass(frozen=True)
class Stored:
    """Type, shape and place of a tensor in the file."""

    kind: int  # ggml's number of its type
    kind_name: str  # Q4_0, F16 ...
    shape: tuple[int, ...]  # In torch's order: rows, columns
    start: int  # Bytes from the beginning of the file
    bytes: int
    file: Path  # The file, or the part of a model, that holds it


@dataclass(frozen=True, eq=False)
class Header:
    """The header of a file.

    Methods raise ModelError where a value is of another kind, or is missing and has no default.
    """

    path: Path
    values: Mapping[str, Any]
    tensors: Mapping[str, Stored]
    bytes: int  # Length of the header; the data begins there
    size: int  # Size of the file in bytes; of all parts together
    parts: tuple[Path, ...]  # The file; of a model in several parts all of them

    @property
    def architecture(self) -> str:
        """llama, qwen2 ..."""
        return self.text("general.architecture")

    def text(self, key: str, default: str | None = None) -> str:
        """A value that is text."""
        return str(self._get(key, default, lambda one: isinstance(one, str), "a text"))

    def whole(self, key: str, default: int | None = None) -> int:
        """A value that is a whole number from 1 to 2^31 - 1."""
        wanted = "a whole number above 0"
        return int(self._get(key, default, lambda one: type(one) is int and 0 < one < 2**31, wanted))

    def number(self, key: str, default: float | None = None) -> float:
        """A value that is a finite number above 0."""
        wanted = "a number above 0"
        return float(self._get(key, default, lambda one: type(one) in (int, float) and 0 < one < inf, wanted))

    def token(self, key: str) -> int | None:
        """A value that is a token's id; None if it is missing."""
        if key not in self.values:
            return None
        count = len(self.texts("tokenizer.ggml.tokens"))
        wanted = f"below {count:,}"
        return int(self._get(key, None, lambda one: type(one) is int and 0 <= one < count, wanted))

    def texts(self, key: str) -> list[str]:
        """A value that is a list of texts."""
        good: list[str] = self._get(key, None, lambda one: isinstance(one, list), "a list of texts")
        return good

    def numbers(self, key: str) -> "array[int] | array[float]":
        """A value that is a list of numbers; empty if it is missing."""
        good: array[int] = self._get(key, array("i"), lambda one: isinstance(one, array), "a list of numbers")
        return good

    def _get(self, key: str, default: Any, good: Callable[[Any], bool], wanted: str) -> Any:
        value = self.values.get(key, default)
        if value is None:
            raise damaged(self.path, f"it does not say {key}")
        if not good(value):
            raise damaged(self.path, f"{key} is {str(value)[:60]}, and {wanted} is needed")
        return value


def is_gguf(path: Path) -> bool:
    """Whether a file begins with GGUF's magic bytes."""
    try:
        if not path.is_file():  # opening a pipe would block
            return False
        with path.open("rb") as file:
            return file.read(4) == MAGIC
    except OSError:
        return False


def is_first(path: Path) -> bool:
    """Whether it is a file, which a link that leads nowhere is not, and no later part of a model."""
    return not _LATER_PART.search(path.name) and os.path.isfile(path)


def header_of(path: Path) -> Header:
    """The header of a file; read again when its size, time or inode changes.

    Any part of a model in several files (NAME-00001-of-00003.gguf) stands for all of them.
    """
    try:
        about = [(part, part.stat()) for part in _parts_of(path)]
        return _read(*((part, one.st_size, one.st_mtime_ns, one.st_ino) for part, one in about))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.", "Check its permissions.") from error


def forget() -> None:
    """Drops cached headers."""
    _read.cache_clear()


def _parts_of(path: Path) -> list[Path]:
    """All parts of the model, by the name of one of them."""
    named = _PART.fullmatch(path.name)
    if named is None or not 1 < int(named[3]) <= MOST_PARTS:
        return [path]
    parts = [path.with_name(f"{named[1]}-{n:05}-of-{named[3]}{SUFFIX}") for n in range(1, int(named[3]) + 1)]
    if missing := [part for part in parts if not part.exists()]:
        raise ModelError(
            f"{path.name} is one of {len(parts)} parts of a model, and {len(missing)} are missing:"
            f" {missing[0]}.",
            "Put all parts into one folder.",
        )
    return parts


@lru_cache(maxsize=2)
def _read(*parts: tuple[Path, int, int, int]) -> Header:
    """The header of a model's files: (path, size, time, inode) of each."""
    headers = list[Header]()
    for number, (path, size, *_) in enumerate(parts):
        with path.open("rb", buffering=1 << 20) as file:
            headers.append(_Reader(path, file, size).header())
        values = headers[-1].values
        count, here = values.get("split.count", 1) or 1, values.get("split.no", 0)
        if (count, here) != (len(parts), number):
            raise ModelError(
                f"{path} is one of {str(count)[:20]} parts of a model, number {str(here)[:20]} from 0 on, and"
                " its name does not say so.",
                f"Name each part as it was: NAME-00001-of-00003{SUFFIX}.",
            )
    tensors = {name: one for header in headers for name, one in header.tensors.items()}
    if not tensors or len(tensors) < sum(len(header.tensors) for header in headers):
        raise damaged(headers[0].path, "a tensor stands in two parts" if tensors else "it holds no tensors")
    size = sum(header.size for header in headers)
    return replace(headers[0], tensors=tensors, size=size, parts=tuple(one.path for one in headers))


class _Reader:
    """Reads a header from its beginning; every length is compared with the bytes that are left."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self._path, self._file, self._size = path, file, size
        self._left = min(size, MOST_HEADER_BYTES)

    def header(self) -> Header:
        if self._take(4, "its beginning") != MAGIC:
            raise damaged(self._path, "it does not begin as a GGUF file does")
        version, tensors, values = self._numbers("<IQQ", "its beginning")
        if version not in VERSIONS:
            swapped = int.from_bytes(int(version).to_bytes(4, "big"), "little") in VERSIONS
            what = "is written for machines of the other byte order" if swapped else f"has version {version}"
            raise ModelError(f"{self._path} {what}; GGUF versions 2 and 3 are read.", "Convert it again.")
        found = dict[str, Any]()
        for _ in range(values):
            key = self._text("a key", _MOST_NAME_BYTES)
            if key in found:
                raise damaged(self._path, f"it says {key[:60]} twice")
            (kind,) = self._numbers("<I", key)
            found[key] = self._value(kind, key)
        entries = [self._tensor() for _ in range(tensors)]
        return self._whole(found, entries)

    def _whole(self, values: dict[str, Any], entries: list[tuple[str, tuple[int, ...], int, int]]) -> Header:
        """The header after all of it was read, since offsets of tensors count from its end."""
        alignment = values.get("general.alignment", 32)
        if type(alignment) is not int or alignment not in (1 << bit for bit in range(3, 17)):
            raise damaged(self._path, f"general.alignment is {str(alignment)[:60]}")
        start = -(-self._file.tell() // alignment) * alignment
        tensors = dict[str, Stored]()
        for name, shape, kind, offset in entries:
            if name in tensors:
                raise damaged(self._path, f"it holds {name[:60]} twice")
            if offset % alignment:
                raise damaged(
                    self._path, f"{name[:60]} begins at {offset:,}, which is no multiple of {alignment}"
                )
            kind_name, length = self._length(name, kind, shape)
            if start + offset + length > self._size:
                raise ModelError(
                    f"{self._path} is damaged: {self._size:,} bytes, and {name[:60]} would end at"
                    f" {start + offset + length:,}.",
                    "The file is cut short or was changed: fetch it again.",
                )
            tensors[name] = Stored(kind, kind_name, shape, start + offset, length, self._path)
        end, before = start, ""
        for name, one in sorted(tensors.items(), key=lambda item: item[1].start):
            if one.start < end:
                raise damaged(self._path, f"{name[:60]} shares bytes with {before[:60]}")
            end, before = one.start + one.bytes, name
        return Header(self._path, values, tensors, start, self._size, (self._path,))

    def _length(self, name: str, kind: int, shape: tuple[int, ...]) -> tuple[str, int]:
        """The name of a tensor's type, and its bytes."""
        known = kinds()
        if kind not in known:
            raise ModelError(
                f"{name[:60]} in {self._path} has the type {kind}, which the package gguf does not know.",
                "The file is damaged, or newer: pip install --upgrade gguf",
            )
        kind_name, numbers, length = known[kind]
        if shape[-1] % numbers:
            raise damaged(
                self._path,
                f"{name[:60]} has {shape[-1]:,} columns, and {kind_name} comes in blocks of {numbers}",
            )
        return kind_name, prod(shape) // numbers * length

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._text("the name of a tensor", _MOST_NAME_BYTES)
        (dimensions,) = self._numbers("<I", name)
        if not 1 <= dimensions <= 4:
            raise damaged(self._path, f"{name[:60]} has {dimensions:,} dimensions")
        sides = self._numbers(f"<{dimensions}Q", name)
        if not all(0 < side < _MOST_SIDE for side in sides):
            raise damaged(self._path, f"{name[:60]} has the shape {list(reversed(sides))}")
        kind, offset = self._numbers("<IQ", name)
        return name, tuple(reversed(sides)), kind, offset

    def _value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self._text(key)
        if kind in _SCALARS:
            (value,) = self._numbers(f"<{_SCALARS[kind]}", key)
            return bool(value) if kind == _BOOL else value
        if kind != _ARRAY:
            raise damaged(self._path, f"{key[:60]} has the type {kind}")
        of, count = self._numbers("<IQ", key)
        if of == _STRING:
            if count > self._left // 8:
                raise damaged(self._path, f"{key[:60]} would hold {count:,} texts")
            return self._texts(count, key)
        if of not in _SCALARS:
            raise damaged(self._path, f"{key[:60]} is an array of the type {of}")
        raw = self._take(count * struct.calcsize(f"<{_SCALARS[of]}"), key)
        numbers = array(_SCALARS[of], raw)
        if struct.pack("=H", 1) != struct.pack("<H", 1):
            numbers.byteswap()
        return numbers

    def _texts(self, count: int, key: str) -> list[str]:
        """All texts of an array; `_text` one by one would take three times as long for a vocabulary."""
        raw, found, at = self._file.read(min(self._left, count * _LIKELY_TEXT_BYTES)), list[str](), 0
        try:
            for _ in range(count):
                end = at + 8 + int.from_bytes(raw[at : at + 8], "little")
                if end > len(raw):
                    break
                found.append(raw[at + 8 : end].decode())
                at = end
        except UnicodeDecodeError as error:
            raise damaged(self._path, f"{key[:60]} is no UTF-8") from error
        self._file.seek(at - len(raw), os.SEEK_CUR)
        self._left -= at
        return found + [self._text(key) for _ in range(count - len(found))]

    def _text(self, what: str, most: int = MOST_HEADER_BYTES) -> str:
        (length,) = self._numbers("<Q", what)
        if length > most:
            raise damaged(self._path, f"{what[:60]} would have {length:,} bytes")
        try:
            return self._take(length, what).decode()
        except UnicodeDecodeError as error:
            raise damaged(self._path, f"{what[:60]} is no UTF-8") from error

    def _numbers(self, form: str, what: str) -> tuple[Any, ...]:
        return struct.unpack(form, self._take(struct.calcsize(form), what))

    def _take(self, count: int, what: str) -> bytes:
        self._left -= count
        if self._left < 0 and self._size > MOST_HEADER_BYTES:
            most = MOST_HEADER_BYTES >> 20
            raise damaged(self._path, f"its header has more than {most} MiB, at {what[:60]}")
        raw = self._file.read(count) if self._left >= 0 else b""
        if len(raw) != count:
            raise damaged(self._path, f"it ends too soon, at {what[:60]}")
        return raw


@lru_cache(maxsize=1)
def kinds() -> dict[int, tuple[str, int, int]]:
    """The types of tensors, by number: name, numbers in a block, bytes of a block."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    sizes = GGML_QUANT_SIZES
    return {int(one): (one.name, *sizes[one]) for one in GGMLQuantizationType if one in sizes}


def damaged(path: Path, what: str) -> ModelError:
    return ModelError(f"{path} is damaged: {what}.", "Fetch the file again.")
