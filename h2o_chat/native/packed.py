"""Opens, checks and maps a packed file, whose pages any number of processes share."""

import mmap
import os
import stat
import warnings
import zlib
from pathlib import Path

import torch
from torch import Tensor

from h2o_chat.base.system import NO_WAITING, SAFELY
from h2o_chat.models.file_identity import is_checked, note_checked
from h2o_chat.native import layout
from h2o_chat.native.layout import MatrixAddress
from h2o_chat.native.packed_file import PackedError, PackedHeader, damaged, header_in, note_of


class Packed:
    """An open packed file. Addresses are valid while this object exists."""

    def __init__(self, path: Path, header: PackedHeader, data: Tensor) -> None:
        self.path, self.header, self.frame, self.fingerprint = path, header, header.frame, header.fingerprint
        self.bytes = self.mapped_bytes = data.nbytes  # All of them take memory only when they are read
        self.note = ""  # Why it was packed again, for the user; usually empty
        self._data = data  # [bytes behind the header] uint8, which keeps the map
        self._places = {place.name: place for place in layout.layout(self.frame)}
        self._parts = {part.name: part for part in layout.parts(self.frame)}

    def matrices(self, name: str) -> tuple[MatrixAddress, ...]:
        """The place of a matrix; here always one.

        Its name is `layers.N.qkv` (rows of q, k, v), `.out`, `.gate_up` (tiles of both alternating), `.down`,
        of an expert `layers.N.experts.E.gate_up`, `.down`; `embedding`; `head`, if it is another.
        """
        part = self._parts[name]
        assert isinstance(part, layout.Matrix)
        weights, scales = self._address(f"{name}.weights"), self._address(f"{name}.scales")
        kind = layout.Q4_0 if part.bits == 4 else layout.Q8_0
        return (MatrixAddress(weights, scales, part.padded_rows, part.padded_columns, kind),)

    def vector(self, name: str) -> int:
        """Address of a vector in fp32: `layers.N.norm_attention`, `.norm_mlp`, `.bias_qkv` ...; `norm`."""
        assert isinstance(self._parts[name], layout.Vector)
        return self._address(name)

    def verify(self) -> None:
        """Compares the checksums of all tensors. Raises PackedError if one differs."""
        view = self._data.numpy().data
        for place, check in zip(self._places.values(), self.header.checks, strict=True):
            if zlib.crc32(view[place.offset : place.offset + place.bytes]) != check:
                raise damaged(self.path, f"{place.name} has another checksum than when it was written")

    def _address(self, name: str) -> int:
        return self._data.data_ptr() + self._places[name].offset


def open_packed(path: Path, fingerprint: str | None = None, *, verify: bool = False) -> Packed:
    """Maps a packed file of the weights with this fingerprint; None: of any.

    Header, table and length are checked each time; checksums of the tensors only if the file has changed
    (size, time, inode) since they were verified, or with `verify`.

    Raises PackedError if it is missing, cannot be read, is damaged, or of other weights or another version.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | SAFELY | NO_WAITING)
    except OSError as error:
        raise PackedError(f"{path} cannot be opened: {error.strerror}.") from error
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise PackedError(f"{path} is no file.", "Look who put it there, and remove it.")
        header, start = header_in(path, descriptor)
        mapped = mmap.mmap(descriptor, about.st_size, access=mmap.ACCESS_READ)
    except OSError as error:
        raise PackedError(f"{path} cannot be read: {error.strerror}.") from error
    finally:
        os.close(descriptor)
    if fingerprint not in (None, header.fingerprint):
        raise PackedError(f"{path} was made from other weights ({header.fingerprint}).", "Pack it again.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that the tensor is read-only
        data = torch.frombuffer(mapped, dtype=torch.uint8)[start:]
    packed = Packed(path, header, data)
    if verify or not is_checked(note_of(path), about):
        packed.verify()
        note_checked(note_of(path), about)
    return packed
