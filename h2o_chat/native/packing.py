"""Packs a model's weights, in blocks of rows, into one file that appears when it is complete.

Memory: a block of rows and the scales of one matrix, whatever the size of the model.
"""

import contextlib
import math
import os
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor
from torch.nn.functional import pad

from h2o_chat.base.errors import ModelError
from h2o_chat.base.progress import Progress
from h2o_chat.base.system import MOVES_OPEN_FILES, lock
from h2o_chat.models.file_identity import fingerprint
from h2o_chat.models.fits import FOUR_BITS_FROM
from h2o_chat.models.model_files import header_of, read_range, weight_files
from h2o_chat.native.layout import ALIGNED, TILE, Matrix, Source, data_bytes, layout, padded, parts
from h2o_chat.native.model_frame import HEAD_BITS, Frame
from h2o_chat.native.packed import Packed, open_packed
from h2o_chat.native.packed_file import PackedError, PackedHeader, home_of, packed_files_of, place_of, remove
from h2o_chat.native.probing import frame_of
from h2o_chat.native.rounding import rounded, tiled, tiled_scales
from h2o_chat.native.threads import one_torch_thread

STAGE = "pack"
BLOCK_NUMBERS = 1 << 17
"""Numbers of a matrix per block: they fit into the processor's cache."""
_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Sources:
    """The tensors of a folder of safetensors. Raises ModelError if files are missing or damaged.

    Files are not mapped: mapped pages would count as memory of this process.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tensors: dict[str, tuple[Path, dict[str, Any]]] = {}
        for file in weight_files(folder):
            self._tensors |= {name: (file, about) for name, about in header_of(file).items()}

    def rows(self, name: str, shape: tuple[int, ...], first: int, end: int) -> Tensor:
        """Rows [first, end) of a tensor of this shape, in fp32.

        Raises ModelError if it is missing, has another shape or type, or contains NaN or infinity.
        """
        # Models saved without their output layer have names without `model.`.
        known = next((one for one in (name, name.removeprefix("model.")) if one in self._tensors), None)
        if known is None:
            raise ModelError(f"{self._folder} lacks the weights {name}.", "Fetch a complete model.")
        file, about = self._tensors[known]
        if tuple(about["shape"]) != shape:
            raise ModelError(
                f"{known} in {file} has the shape {about['shape']}, config.json says {list(shape)}.",
                "Fetch both files again.",
            )
        start, stop = about["data_offsets"]
        dtype = _DTYPES.get(about["dtype"])
        if dtype is None or math.prod(shape) * dtype.itemsize != stop - start:
            raise ModelError(
                f"{known} in {file} holds numbers of the type {about['dtype']} in {stop - start:,} bytes.",
                f"The native step takes {', '.join(_DTYPES)}: --engine transformers may know it.",
            )
        row_bytes = math.prod(shape[1:]) * dtype.itemsize
        raw = read_range(file, start + first * row_bytes, (end - first) * row_bytes)
        numbers = torch.frombuffer(raw, dtype=dtype).view(end - first, *shape[1:]).float()
        if not numbers.isfinite().all():
            raise ModelError(f"{name} in {file} holds NaN or infinity.", "Fetch the file again.")
        return numbers


def packed_for(folder: Path, bits: int, progress: Progress, *, verify: bool = False) -> Packed:
    """Opens the packed weights of a model in 4 or 8 bits; packs them first if they are missing or damaged.

    If it was packed again, its `note` says why. `progress` gets the stage "pack" meanwhile. With `verify`
    checksums are verified in any case.

    Raises:
        PackedError: the native step cannot compute the model, or the file cannot be written.
        ModelError: weight files are missing or damaged.
    """
    print_ = fingerprint(folder)
    path, note = place_of(print_, bits), ""
    if path.exists():
        try:
            return open_packed(path, print_, verify=verify)
        except PackedError as error:
            note = f"{error.message} It was packed again."
    pack(folder, bits, print_, path, progress)
    packed = open_packed(path, print_)
    packed.note = note
    return packed


def usual_bits(parameters: int) -> int:
    """Default bits for a model of this size: 4 bits harm small ones too much (docs/NATIVE.md)."""
    return 4 if parameters >= FOUR_BITS_FROM else 8


def pack(
    folder: Path, bits: int, print_: str, path: Path, progress: Progress, head_bits: int = HEAD_BITS
) -> None:
    """Writes a packed file atomically, and removes those of earlier weights; raises as `packed_for`.

    `head_bits`, 4 or 8, are those of output layer and embedding.
    """
    progress(STAGE, 0.0)
    frame = frame_of(folder, bits)
    if isinstance(frame, str):
        raise PackedError(f"The native step cannot compute {folder}: {frame}.", "Use --engine transformers.")
    frame = replace(frame, head_bits=head_bits)
    sources = Sources(folder)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_leftovers(path.parent)
        with _part_of(path) as (file, part), one_torch_thread():
            _write(file, sources, frame, print_, home_of(folder), progress)
            file.flush()
            os.fsync(file.fileno())
            if hasattr(os, "posix_fadvise"):  # read again sequentially, it lies in larger pages
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if not MOVES_OPEN_FILES:
                file.close()
            _move(part, path)
    except OSError as error:
        raise PackedError(
            f"{path} cannot be written: {error.strerror or error}.",
            f"It takes {data_bytes(frame) / 1e6:,.0f} MB: make room there or let it be written, or name"
            " another folder with XDG_CACHE_HOME.",
        ) from error
    for old in packed_files_of(folder)[1]:
        if old.fingerprint != print_ or old.bits == bits:
            with contextlib.suppress(*(() if MOVES_OPEN_FILES else (PackedError,))):
                remove(old.path)  # fails on Windows while it is mapped: the next packing removes it


def _move(part: Path, path: Path) -> None:
    try:
        part.replace(path)
    except PermissionError:
        if MOVES_OPEN_FILES or not path.exists():
            raise
        # On Windows a mapped file cannot be replaced: another process has packed the same weights.


def _write(
    file: BinaryIO, sources: Sources, frame: Frame, print_: str, home: str, progress: Progress
) -> None:
    """Writes the whole file; the header comes last, since it has the checksums."""
    header = PackedHeader(print_, home, frame, (0,) * len(layout(frame))).encoded()
    total, done = data_bytes(frame), 0
    if hasattr(os, "posix_fallocate"):  # a full disk raises now, not after a minute
        os.posix_fallocate(file.fileno(), 0, len(header) + total)
    file.seek(len(header))
    checks = list[int]()

    def put(blocks: Iterator[Tensor]) -> None:
        nonlocal done
        check, size = 0, 0
        for block in blocks:
            raw = block.view(torch.uint8).numpy().data
            check = zlib.crc32(raw, check)
            size += file.write(raw)
            progress(STAGE, min(1.0, (done + size) / total))
        file.write(bytes(padded(size, ALIGNED) - size))
        done += padded(size, ALIGNED)
        checks.append(check)

    for part in parts(frame):
        if isinstance(part, Matrix):
            scales = list[Tensor]()
            put(_tiles(part, sources, scales))
            put(iter(scales))
        else:
            read = (sources.rows(one.name, one.shape, 0, one.rows) for one in part.sources)
            put((numbers + part.plus) / part.over for numbers in read)
    file.seek(0)
    file.write(PackedHeader(print_, home, frame, tuple(checks)).encoded())


def _tiles(matrix: Matrix, sources: Sources, scales: list[Tensor]) -> Iterator[Tensor]:
    """Blocks of a matrix's tiles, [T, G, 4 or 8, 16, 4] bytes; `scales` gets their scales [T, G, 16]."""
    at_once = padded(BLOCK_NUMBERS // matrix.padded_columns, TILE) or TILE

    def block(source: Source, first: int) -> list[Tensor]:
        """Padded rows of a source: q [R, C] int8, scales [R, G] fp16."""
        shape, end = (source.whole or source.rows, matrix.columns), min(first + at_once, source.rows)
        numbers = sources.rows(source.name, shape, source.start + first, source.start + end)
        found = rounded(pad(numbers, (0, matrix.padded_columns - matrix.columns)), matrix.bits)
        return [pad(one, (0, 0, 0, -len(one) % TILE)) for one in found]

    for together in [matrix.sources] if matrix.alternate else [(one,) for one in matrix.sources]:
        for first in range(0, together[0].rows, at_once):
            each = zip(*(block(source, first) for source in together), strict=True)
            # [R / 16, sources, 16, columns]: their tiles alternate.
            tiles = (torch.stack([one.view(-1, TILE, one.shape[1]) for one in rows], 1) for rows in each)
            q, scale = (one.flatten(0, 2) for one in tiles)
            scales.append(tiled_scales(scale))
            yield tiled(q, matrix.bits)


@contextlib.contextmanager
def _part_of(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A temporary file beside `path`, locked while it is written; removed if it was not moved."""
    while True:
        descriptor, name = tempfile.mkstemp(".part", f"{path.name}.", path.parent)
        with os.fdopen(descriptor, "wb") as file:
            lock(file.fileno(), wait=True)
            if not Path(name).exists():  # another process removed it as a leftover before it was locked
                continue
            try:
                yield file, Path(name)
            finally:
                Path(name).unlink(missing_ok=True)
            return


def _remove_leftovers(folder: Path) -> None:
    """Removes temporary files of killed processes: those that are not locked."""
    for left in folder.glob("*.part"):
        with contextlib.suppress(OSError):
            with left.open("rb") as file:
                lock(file.fileno())
                if MOVES_OPEN_FILES:
                    left.unlink(missing_ok=True)
            left.unlink(missing_ok=True)
