"""GGUF files: the header, their names and fingerprints, and what is wrong with damaged ones."""

import struct
from pathlib import Path

import gguf as library
import pytest
from gguf_files import write

from h2o_chat.base.errors import ModelError
from h2o_chat.models import gguf, load, load_tokenizer
from h2o_chat.models.file_identity import fingerprint
from h2o_chat.models.model_files import read_config
from h2o_chat.models.resolve import find, look_up


def test_the_header_is_what_the_package_gguf_reads(file: Path) -> None:
    header, other = gguf.header_of(file), library.GGUFReader(file)
    assert {name: one.contents() for name, one in other.fields.items() if not name.startswith("GGUF.")} == {
        name: list(one) if isinstance(one, list) or hasattr(one, "typecode") else one
        for name, one in header.values.items()
    }
    assert len(other.tensors) == len(header.tensors)
    for tensor in other.tensors:
        mine = header.tensors[tensor.name]
        assert (mine.kind_name, mine.start, mine.bytes) == (
            tensor.tensor_type.name,
            tensor.data_offset,
            tensor.n_bytes,
        )
        assert mine.shape == tuple(reversed(tensor.shape.tolist()))


def test_a_file_that_changed_is_read_again(file: Path, llama: Path) -> None:
    before = gguf.header_of(file)
    assert gguf.header_of(file) is before
    write(llama, file, "F32")
    assert gguf.header_of(file).tensors["output.weight"].kind_name == "F32"


def header(
    values: bytes = b"", tensors: bytes = b"", counts: tuple[int, int] = (1, 1), version: int = 3
) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, counts[1], counts[0]) + values + tensors


def text(words: str | bytes) -> bytes:
    raw = words.encode() if isinstance(words, str) else words
    return struct.pack("<Q", len(raw)) + raw


def tensor(name: str, sides: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(sides)}QIQ", len(sides), *sides, kind, offset)


ARCHITECTURE = text("general.architecture") + struct.pack("<I", 8) + text("llama")
GOOD = tensor("x", (4,)), b"\0" * 64


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"GGUF", "it ends"),
        (b"GGUG" + b"\0" * 30, "does not begin"),
        (header(ARCHITECTURE, GOOD[0], version=1), "has version 1"),
        (header(ARCHITECTURE, GOOD[0], version=3 << 24), "other byte order"),
        (header(b"", b"", counts=(2**63, 1)), "it ends"),
        (header(ARCHITECTURE, b"", counts=(1, 2**63)), "it ends"),
        (header(struct.pack("<Q", 2**62) + b"x"), "would have 4,611,686,018,427,387,904 bytes"),
        (header(ARCHITECTURE * 2, GOOD[0], counts=(2, 1)), "twice"),
        (header(text("a") + struct.pack("<I", 77), GOOD[0]), "the type 77"),
        (
            header(text("a") + struct.pack("<IIQ", 9, 8, 2**60), GOOD[0]),
            "would hold 1,152,921,504,606,846,976 texts",
        ),
        (header(text("a") + struct.pack("<IIQ", 9, 0, 2**60), GOOD[0]), "it ends"),
        (header(text("a") + struct.pack("<IIQ", 9, 9, 1), GOOD[0]), "array of the type 9"),
        (header(text(b"\xff") + struct.pack("<IB", 0, 1), GOOD[0]), "no UTF-8"),
        (header(ARCHITECTURE, tensor("x", (4, 1, 1, 1, 1))), "5 dimensions"),
        (header(ARCHITECTURE, tensor("x", (0, 4))), r"the shape \[4, 0\]"),
        (header(ARCHITECTURE, tensor("x", (2**63, 4))), "the shape"),
        (header(ARCHITECTURE, tensor("x", (4,), 99)), "the type 99"),
        (header(ARCHITECTURE, tensor("x", (4,), 2)), "blocks of 32"),
        (header(ARCHITECTURE, tensor("x", (4,), 0, 3)), "no multiple of 32"),
        (header(ARCHITECTURE, tensor("x", (2**30, 2**9))), "would end at"),
        (header(ARCHITECTURE, GOOD[0] * 2, counts=(1, 2)) + GOOD[1], "twice"),
        (header(ARCHITECTURE, b"", counts=(1, 0)), "no tensors"),
        (
            header(ARCHITECTURE, tensor("x", (16,)) + tensor("y", (16,), 0, 32), (1, 2)) + bytes(160),
            "y shares bytes with x",
        ),
        (header(text("general.alignment") + struct.pack("<II", 4, 0), GOOD[0]), "general.alignment is 0"),
        (header(text("split.count") + struct.pack("<IH", 2, 3), GOOD[0]) + GOOD[1], "one of 3 parts"),
        (
            header(text("a") + struct.pack("<IB", 0, 1), GOOD[0]) + GOOD[1],
            "does not say general.architecture",
        ),
        (
            header(text("general.architecture") + struct.pack("<IB", 0, 1), GOOD[0]) + GOOD[1],
            "a text is needed",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_damaged_header_says_what_is_wrong(raw: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(raw)
    with pytest.raises(ModelError, match=said):
        read_config(path)


def test_words_of_a_stranger_are_not_obeyed(llama: Path, tmp_path: Path) -> None:
    path = write(llama, tmp_path / "x.gguf", "F32", values={"tokenizer.ggml.model": "\x1b]0;gone\x07"})
    with pytest.raises(ModelError) as caught:
        load_tokenizer.load_tokenizer(path, load.check_family(path).vocab_size)
    assert "\x1b" not in str(caught.value)


def test_it_is_found_by_its_name(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find(str(file))
    assert (found.name, found.folder, found.revision) == ("tiny.gguf", file, None)
    monkeypatch.chdir(tmp_path)
    assert find("tiny.gguf").folder.resolve() == file
    with pytest.raises(ModelError, match=r"name one, such as .*tiny\.gguf"):
        look_up(str(tmp_path))
    file.rename(tmp_path / "without a suffix")
    assert find("without a suffix").name == "without a suffix"


def test_a_fingerprint_tells_files_apart(file: Path, llama: Path, tmp_path: Path) -> None:
    before = fingerprint(file)
    assert before == fingerprint(file)
    same = write(llama, tmp_path / "other name.gguf", "Q8_0", template="{{ messages }}")
    assert fingerprint(same) == before
    other = write(llama, tmp_path / "template.gguf", "Q8_0", template="{{ messagez }}")
    assert fingerprint(other) != before, "what the header says counts, at the same length too"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    assert fingerprint(file) != before
