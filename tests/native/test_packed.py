"""Opening packed files: what is damaged is refused or made anew, never believed."""

import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import forking
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from making import SIZES, Make, silent
from tiny_models import tiny

from h2o_chat.base.errors import ModelError
from h2o_chat.models.file_identity import is_checked
from h2o_chat.native import packing
from h2o_chat.native.layout import ALIGNED, layout
from h2o_chat.native.packed import Packed, open_packed
from h2o_chat.native.packed_file import MAGIC, PackedError, note_of
from h2o_chat.native.packing import packed_for


@pytest.fixture
def packed(saved: Make) -> Packed:
    return packed_for(saved(), 8, silent)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A packed file as it should be."""
    folder = tmp_path_factory.mktemp("whole")
    tiny("qwen2", "eager", torch.float32, **SIZES).save_pretrained(folder)
    packing.pack(folder, 4, "weights-0123456789ab", folder / "file.h2o", silent)
    return (folder / "file.h2o").read_bytes()


def start_of_data(raw: bytes) -> int:
    length = struct.unpack_from("<I", raw, len(MAGIC) + 4)[0]
    return -(-(24 + int(length)) // ALIGNED) * ALIGNED


def with_text(raw: bytes, text: bytes) -> bytes:
    """A file with another header of right length and checksum."""
    fixed = struct.pack("<8sIIII", MAGIC, 1, len(text), zlib.crc32(text), 0)
    head = fixed + text
    return head.ljust(-(-len(head) // ALIGNED) * ALIGNED, b"\0") + raw[start_of_data(raw) :]


def text_of(raw: bytes) -> bytes:
    return raw[24 : 24 + struct.unpack_from("<I", raw, len(MAGIC) + 4)[0]]


def refused(path: Path, raw: bytes, *said: str) -> PackedError:
    path.write_bytes(raw)
    with pytest.raises(PackedError) as caught:
        open_packed(path)
    assert str(path) in caught.value.message
    assert all(one in str(caught.value) for one in said), caught.value
    return caught.value


@pytest.mark.usefixtures("forked")
def test_nobody_can_write_to_it(packed: Packed) -> None:
    """The pages are shared by all processes."""
    code = (
        "import ctypes, sys\nfrom pathlib import Path\nfrom h2o_chat.native.packed import open_packed\n"
        "packed = open_packed(Path(sys.argv[1]))\nprint('open', flush=True)\n"
        "ctypes.memset(packed.vector('norm'), 1, 4)"
    )
    command = [sys.executable, "-c", code, str(packed.path)]
    done = subprocess.run(command, env=forking.OUTSIDE, capture_output=True, check=False)
    assert done.stdout == b"open\n"
    assert done.returncode < 0, "the system ended it"


# -- headers


@given(data=st.data())
def test_damaged_headers(whole: bytes, tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """Bytes exchanged, removed or added anywhere in the header. 100,000 are tried by tools/stress/fuzz.py."""
    path = tmp_path_factory.mktemp("headers", numbered=True) / "file.h2o"
    start = start_of_data(whole)
    at = data.draw(st.integers(0, start - 1))
    end = data.draw(st.integers(at, min(start, at + 8)))
    new = data.draw(st.binary(max_size=8))
    raw = whole[:at] + new + whole[end:]
    path.write_bytes(raw)
    if raw == whole:
        assert open_packed(path)
        return
    with pytest.raises(PackedError):
        open_packed(path)


@given(data=st.data())
def test_headers_of_somebody_who_knows_the_format(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    """Another digit somewhere, and the right checksum: nothing is read beyond the file."""
    path = tmp_path_factory.mktemp("crafted", numbered=True) / "file.h2o"
    text = text_of(whole)
    digits = [at for at, byte in enumerate(text) if chr(byte).isdigit()]
    at = data.draw(st.sampled_from(digits))
    new = data.draw(st.sampled_from([b"0", b"9", b"-1", b"1e9", b"4096", b"null", b"99999999999"]))
    changed = text[:at] + new + text[at + 1 :]
    path.write_bytes(with_text(whole, changed))
    try:
        opened = open_packed(path, verify=True)
    except PackedError:
        return
    for place in layout(opened.frame):  # it was no number that says what lies where
        assert place.offset + place.bytes <= opened.bytes


@pytest.mark.parametrize(
    "of", [b'"layers": 3', b'"hidden": 40', b'"heads": 4', b'"bits": 4', b'"bias": true']
)
def test_a_frame_of_another_shape(whole: bytes, tmp_path: Path, of: bytes) -> None:
    other = {b"3": b"2", b"40": b"64", b"4": b"8", b"true": b"false"}
    name, value = of.split(b" ")
    changed = text_of(whole).replace(of, name + b" " + other[value])
    assert changed != text_of(whole)
    refused(tmp_path / "file.h2o", with_text(whole, changed), "is damaged")


def test_what_is_none(whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.h2o"
    refused(path, b"", "does not begin as a packed file does")
    refused(path, whole[:20], "does not begin as a packed file does")
    refused(path, b"PK" + whole[2:], "does not begin as a packed file does")
    refused(path, whole[:-64], "bytes, and its frame takes")
    refused(path, whole + bytes(64), "bytes, and its frame takes")
    refused(path, whole[:8] + struct.pack("<I", 2) + whole[12:], "has the layout 2, this version reads 1")
    refused(path, whole[:12] + struct.pack("<I", 2**32 - 1) + whole[16:], "its header would have")
    refused(path, with_text(whole, b"[" * 100000), "is damaged")
    refused(path, with_text(whole, b"{}"), "lacks a field")
    refused(path, with_text(whole, b"\xff"), "is damaged")


def test_what_is_no_file(tmp_path: Path, whole: bytes) -> None:
    with pytest.raises(PackedError, match="cannot be opened: No such file"):
        open_packed(tmp_path / "nothing.h2o")
    with pytest.raises(PackedError, match="is no file"):
        open_packed(tmp_path)
    os.mkfifo(tmp_path / "pipe.h2o")
    with pytest.raises(PackedError, match="is no file"):
        open_packed(tmp_path / "pipe.h2o")
    (tmp_path / "file.h2o").write_bytes(whole)
    (tmp_path / "link.h2o").symlink_to(tmp_path / "file.h2o")
    with pytest.raises(PackedError, match="cannot be opened"):
        open_packed(tmp_path / "link.h2o")


def test_other_weights(packed: Packed) -> None:
    with pytest.raises(PackedError, match="made from other weights"):
        open_packed(packed.path, "weights-000000000000")


# -- weights


def test_damaged_weights_are_found(packed: Packed) -> None:
    start = start_of_data(packed.path.read_bytes())
    for place in layout(packed.frame):
        for at in (place.offset, place.offset + place.bytes // 2, place.offset + place.bytes - 1):
            flip(packed.path, start + at)
            with pytest.raises(PackedError) as caught:
                open_packed(packed.path)
            assert f"{place.name} has another checksum" in caught.value.message
            flip(packed.path, start + at)
    assert open_packed(packed.path)


@pytest.mark.parametrize("share", [0.0, 0.99])
def test_damaged_weights_are_packed_again(saved: Make, share: float) -> None:
    """It is said once; afterwards the file is whole. A thousand are tried by tools/stress/fuzz.py."""
    folder = saved()
    packed = packed_for(folder, 8, silent)
    whole, places = packed.path.read_bytes(), layout(packed.frame)
    place = places[int(share * len(places))]
    flip(packed.path, start_of_data(whole) + place.offset)
    again = packed_for(folder, 8, silent)
    assert place.name in again.note
    assert again.note.endswith("It was packed again.")
    assert packed.path.read_bytes() == whole
    assert packed_for(folder, 8, silent).note == ""


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def test_checksums_are_verified_when_the_file_changed(
    packed: Packed, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    verify = Packed.verify

    def counted(self: Packed) -> None:
        read.append(self.path)
        verify(self)

    monkeypatch.setattr(Packed, "verify", counted)
    path, about = packed.path, packed.path.stat()
    open_packed(path)
    assert not read, "they were when it was packed"
    open_packed(path, verify=True)
    assert len(read) == 1
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns + 1000))
    assert not is_checked(note_of(path), path.stat())
    open_packed(path)
    open_packed(path)
    assert len(read) == 2, "once"
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    now = path.stat()
    os.utime(copy, ns=(now.st_atime_ns, now.st_mtime_ns))
    copy.replace(path)
    open_packed(path)
    assert len(read) == 3, "another inode"


@pytest.mark.parametrize("noted", [b"", b"[]", b"{", b"[" * 100000, b"\xff", b'{"bytes": 1}'])
def test_a_note_that_is_none(packed: Packed, noted: bytes) -> None:
    packed.path.with_name(f"{packed.path.name}.checked").write_bytes(noted)
    assert not is_checked(note_of(packed.path), packed.path.stat())
    assert open_packed(packed.path).frame == packed.frame
    assert is_checked(note_of(packed.path), packed.path.stat())


def test_a_cache_that_cannot_be_written_is_verified_each_time(packed: Packed) -> None:
    note = packed.path.with_name(f"{packed.path.name}.checked")
    note.unlink()
    note.mkdir()
    assert open_packed(packed.path).frame == packed.frame
    assert not is_checked(note_of(packed.path), packed.path.stat())


def test_what_cannot_be_packed_again_is_not_opened_either(
    saved: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved()
    packed = packed_for(folder, 8, silent)
    flip(packed.path, start_of_data(packed.path.read_bytes()))
    (folder / "model.safetensors").write_bytes(b"cut")
    monkeypatch.setattr(packing, "fingerprint", lambda _: packed.header.fingerprint)
    with pytest.raises(ModelError, match=r"model\.safetensors is damaged"):
        packed_for(folder, 8, silent)
