"""A model's weights packed: tensor by tensor, in blocks of rows, into one file that appears when it is whole.

Memory: a block of rows and the scales of one matrix, whatever the size of the model.
"""

import contextlib
import os
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor
from torch.nn.functional import pad

from h2o_chat.base.progress import Progress
from h2o_chat.base.system import MOVES_OPEN_FILES, lock
from h2o_chat.models.fingerprint import fingerprint
from h2o_chat.native.frame import Frame
from h2o_chat.native.gguf_sources import GgufSources
from h2o_chat.native.header import Header, PackedError
from h2o_chat.native.layout import ALIGNED, TILE, Matrix, data_bytes, layout, padded, parts
from h2o_chat.native.packed import Packed, open_packed
from h2o_chat.native.places import home_of, kept_of, place_of, remove
from h2o_chat.native.probing import HEAD_BITS, frame_of
from h2o_chat.native.sources import Sources
from h2o_chat.native.tiles import tiled, tiled_scales

STAGE = "pack"
FOUR_BITS_FROM = 500_000_000
"""Parameters."""
AnySources = Sources | GgufSources
BLOCK_NUMBERS = 1 << 17
"""Of a matrix at once: what is computed with them stays in the processor's cache."""


def packed_for(folder: Path, bits: int, progress: Progress, *, verify: bool = False) -> Packed:
    """The packed weights of a model; packs them first where they are not there, or not as they were written.

    Args:
        bits: 4 or 8, of the layers' weights.
        progress: gets the stage "pack" while they are packed.
        verify: the checksums in any case (`open_packed`).

    Returns:
        The open file; its `note` says why it was packed again, where it was.

    Raises:
        PackedError: the native step cannot compute the model, or the file cannot be written.
        ModelError: the weights are not whole.
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
    """Of a model of this size: rounding to 4 bits costs small ones too much (docs/NATIVE.md)."""
    return 4 if parameters >= FOUR_BITS_FROM else 8


def pack(
    folder: Path, bits: int, print_: str, path: Path, progress: Progress, head_bits: int = HEAD_BITS
) -> None:
    """Writes a packed file in one move, and removes those of weights that the folder held before.

    Args:
        head_bits: 4 or 8, of head and embedding. What a start opens has HEAD_BITS.

    Raises:
        PackedError: the native step cannot compute the model, or the file cannot be written.
        ModelError: the weights are not whole.
    """
    progress(STAGE, 0.0)
    frame = frame_of(folder, bits)
    if isinstance(frame, str):
        raise PackedError(f"The native step cannot compute {folder}: {frame}.", "Use --engine transformers.")
    frame = replace(frame, head_bits=head_bits)
    sources = sources_of(folder)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_leftovers(path.parent)
        with _part_of(path) as (file, part), _one_thread():
            _write(file, sources, frame, print_, home_of(folder), progress)
            file.flush()
            os.fsync(file.fileno())
            if hasattr(os, "posix_fadvise"):  # read again in one go it lies in larger pages
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
    for old in kept_of(folder)[1]:
        if old.fingerprint != print_ or old.bits == bits:
            with contextlib.suppress(*(() if MOVES_OPEN_FILES else (PackedError,))):
                remove(old.path)  # on Windows not while a process has it mapped: the next packing removes it


def _move(part: Path, path: Path) -> None:
    try:
        part.replace(path)
    except PermissionError:
        if MOVES_OPEN_FILES or not path.exists():
            raise
        # Windows replaces no file that is mapped: another process has packed the same, and computes with it.


def sources_of(model: Path) -> AnySources:
    """The tensors of a folder, or of a GGUF file.

    Raises:
        ModelError: they are not whole.
    """
    return GgufSources(model) if model.is_file() else Sources(model)


def _write(
    file: BinaryIO, sources: AnySources, frame: Frame, print_: str, home: str, progress: Progress
) -> None:
    """The whole file. The header comes last: it has the checksums."""
    header = Header(print_, home, frame, (0,) * len(layout(frame))).encoded()
    total, done = data_bytes(frame), 0
    if hasattr(os, "posix_fallocate"):  # a full disk is full now, not after a minute
        os.posix_fallocate(file.fileno(), 0, len(header) + total)
    file.seek(len(header))
    checks = list[int]()

    def put(blocks: Iterator[Tensor]) -> None:
        """A tensor, in parts."""
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
            put(sources.rows(one.name, (one.rows,), 0, one.rows) for one in part.sources)
    file.seek(0)
    file.write(Header(print_, home, frame, tuple(checks)).encoded())


def _tiles(matrix: Matrix, sources: AnySources, scales: list[Tensor]) -> Iterator[Tensor]:
    """A matrix in blocks of tiles, [T, G, 4 or 8, 16, 4] bytes; `scales` gets their scales [T, G, 16]."""
    for q, scale in _blocks(matrix, sources):
        scales.append(tiled_scales(scale))
        yield tiled(q, matrix.bits)


def _blocks(matrix: Matrix, sources: AnySources) -> Iterator[tuple[Tensor, Tensor]]:
    """The rows of a matrix in order, padded, some tiles at a time: q [R, C] int8, scales [R, G] fp16."""
    at_once = padded(BLOCK_NUMBERS // matrix.padded_columns, TILE) or TILE

    def block(which: int, first: int) -> list[Tensor]:
        source = matrix.sources[which]
        shape, end = (source.rows, matrix.columns), min(first + at_once, source.rows)
        found = sources.rounded(source.name, shape, first, end, matrix.bits)
        return [pad(one, (0, 0, 0, -len(one) % TILE)) for one in found]

    if matrix.alternate:
        for first in range(0, matrix.sources[0].rows, at_once):
            each = zip(*(block(which, first) for which in range(len(matrix.sources))), strict=True)
            q, scale = (_in_turns(list(rows)) for rows in each)
            yield q, scale
        return
    for which, source in enumerate(matrix.sources):
        for first in range(0, source.rows, at_once):
            q, scale = block(which, first)
            yield q, scale


def _in_turns(each: list[Tensor]) -> Tensor:
    """A tile of the first, one of the second, and so on. [R, C]"""
    return torch.stack([rows.view(-1, TILE, rows.shape[1]) for rows in each], 1).flatten(0, 2)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Blocks are small: beside other work several threads wait for each other longer than they compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _part_of(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A file beside `path`, held while it is written; gone afterwards where it was not moved."""
    while True:
        descriptor, name = tempfile.mkstemp(".part", f"{path.name}.", path.parent)
        with contextlib.ExitStack() as closing:
            file = closing.enter_context(os.fdopen(descriptor, "wb"))
            lock(file.fileno(), wait=True)
            if not Path(name).exists():  # somebody who cleans up took it before it was held
                continue
            try:
                yield file, Path(name)
            finally:
                Path(name).unlink(missing_ok=True)
            return


def _remove_leftovers(folder: Path) -> None:
    """Of processes that were killed while they packed: files that nobody holds."""
    for left in folder.glob("*.part"):
        with contextlib.suppress(OSError):
            with left.open("rb") as file:
                lock(file.fileno())
                if MOVES_OPEN_FILES:
                    left.unlink(missing_ok=True)
            left.unlink(missing_ok=True)
