"""A GGUF file's weights in memory, with the bits, scales and minima of the file; nothing is written to disk.

The C++ library lays blocks out in tiles while they are read, in parallel. F32, F16, BF16 and types that
`src/weights.h` does not have (Q2_K, IQ4_NL ...) are rounded to 8 bits. No torch: it is imported meanwhile.
"""

import ctypes
import mmap
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from threading import Thread

import numpy

from h2o_chat.base.progress import Progress
from h2o_chat.models.file_identity import fingerprint
from h2o_chat.models.gguf import Stored, damaged
from h2o_chat.models.gguf_tensors import GgufTensors, unpaired
from h2o_chat.native import layout, library
from h2o_chat.native.layout import (
    ALIGNED,
    BF16,
    F16,
    F32,
    GROUP,
    LEVELS_BYTES,
    MXFP4,
    SCALES_BYTES,
    TILE,
    MatrixAddress,
    Source,
    in_tiles,
    padded,
)
from h2o_chat.native.model_frame import Frame

STAGE = "open"
_MADV_COLLAPSE = 25
LARGE_PAGES_AFTER_S = 10.0
SLICE_BYTES = 32 << 20
"""Bytes that move at a time: meanwhile no other thread can get memory."""
READ_BYTES = 2 << 20
"""Bytes of a file that a thread reads and lays out at a time."""


@dataclass(frozen=True)
class _Run:
    """Rows of one tensor that are read and laid out together."""

    name: str
    stored: Stored
    first: int
    end: int
    to: MatrixAddress
    tile: int  # The first tile of `to` that they fill
    every: int  # Tiles from one of theirs to the next


def _address(memory: "mmap.mmap | bytearray") -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _use_large_pages(memory: mmap.mmap) -> None:
    """Moves memory into pages of 2 MiB, in the background: tokens of small models take 20% less time then.

    In a virtual machine 1.1 GB takes 3 s of one processor, so a program that answers once does not begin it,
    and the first answer does not wait for it. Systems older than Linux 6.1 refuse, and keep small pages.
    """
    if sys.platform == "linux":
        collapse = ctypes.CDLL(None).madvise
        collapse.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

        def move(memory: mmap.mmap) -> None:
            time.sleep(LARGE_PAGES_AFTER_S)
            for first in range(0, len(memory), SLICE_BYTES):
                collapse(_address(memory) + first, min(SLICE_BYTES, len(memory) - first), _MADV_COLLAPSE)

        Thread(target=move, args=(memory,), daemon=True).start()


class GgufWeights:
    """The weights of an open file. Addresses are valid while this object exists.

    `begin` lets threads lay them out, `finish` does the rest. The constructor and both raise ModelError if
    the file is damaged or changes while it is read, or a scale is no finite number.
    """

    def __init__(self, file: Path, frame: Frame) -> None:
        self.frame, self.note, self.fingerprint = frame, "", fingerprint(file)
        self._file, self._stat = file, file.stat()
        self._tensors = GgufTensors(file)
        self._matrices: dict[str, tuple[MatrixAddress, ...]] = {}
        self._vectors: dict[str, int] = {}
        self.bytes = self._place(0)
        # Shared memory, which is mmap's default, has no large pages.
        private = {} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
        self._memory = mmap.mmap(-1, self.bytes, **private)
        self._place(_address(self._memory))
        self._read_vectors()
        self._threads = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 1))  # `finish` is one more
        self._laid_out: list[tuple[_Run, Future[None]]] = []
        self._rows = 0  # laid out so far, for the progress alone: threads add to it without a lock

    def begin(self) -> None:
        runs = sorted(self._runs(), key=lambda run: (run.stored.start, run.first))
        for run in runs:
            self._laid_out.append((run, self._threads.submit(self._lay_out, run)))

    def finish(self, frame: Frame, progress: Progress) -> None:
        """Lays out what is left, together with the threads.

        Args:
            frame: the same with its rotations, which the weights need not know.
        """
        now = self._file.stat()
        same_file = (now.st_size, now.st_mtime_ns) == (self._stat.st_size, self._stat.st_mtime_ns)
        if not same_file or replace(frame, ropes=(), rope_of=()) != replace(self.frame, ropes=(), rope_of=()):
            raise damaged(self._file, "it was changed while it was opened")
        self.frame = frame
        total = sum(run.end - run.first for run, _ in self._laid_out)
        for run, result in reversed(self._laid_out):  # the threads come from the other end
            progress(STAGE, self._rows / total)
            if result.cancel():
                self._lay_out(run)
            else:
                result.result()
        progress(STAGE, 1.0)
        self._laid_out.clear()
        self._threads.shutdown()
        _use_large_pages(self._memory)

    def give_up(self) -> None:
        """Frees the memory if it is not finished; threads end after what they are laying out now."""
        self._threads.shutdown(cancel_futures=True)
        if self._laid_out:
            self._memory.close()

    mapped_bytes = 0
    """Bytes that take memory only when they are read."""

    def matrices(self, name: str) -> tuple[MatrixAddress, ...]:
        """See `Packed.matrices`; several, one below the other, where the file has several types for it."""
        return self._matrices[name]

    def vector(self, name: str) -> int:
        """See `Packed.vector`."""
        return self._vectors[name]

    def _place(self, start: int) -> int:
        """Gives every matrix and vector its place from address `start` on; returns the end."""
        end = start
        for part in layout.parts(self.frame):
            if isinstance(part, layout.Vector):
                self._vectors[part.name] = end
                end = padded(end + 4 * padded(part.numbers, TILE), ALIGNED)
                continue
            found = []
            for kind, sources in self._by_kind(part):
                rows, columns = sum(padded(one.rows, TILE) for one in sources), part.padded_columns
                groups = rows // TILE * columns // GROUP
                scales = padded(end + groups * LEVELS_BYTES[kind], ALIGNED)
                found.append(MatrixAddress(end, scales, rows, columns, kind))
                end = padded(scales + groups * SCALES_BYTES[kind], ALIGNED)
            self._matrices[part.name] = tuple(found)
        return end

    def _by_kind(self, part: layout.Matrix) -> list[tuple[int, list[Source]]]:
        """Neighbouring sources of a matrix of one kind."""
        neighbours = groupby(part.sources, lambda one: in_tiles(self._stored(one, part.columns).kind))
        return [(kind, list(sources)) for kind, sources in neighbours]

    def _stored(self, source: Source, columns: int) -> Stored:
        return self._tensors.find(source.name, (source.whole or source.rows, columns))

    def _read_vectors(self) -> None:
        for part in layout.parts(self.frame):
            if isinstance(part, layout.Vector):
                read = [self._tensors.rows(one.name, one.shape, 0, one.rows) for one in part.sources]
                numbers = numpy.concatenate([one.ravel() for one in read]) / numpy.float32(part.over)
                ctypes.memmove(self._vectors[part.name], numbers.ctypes.data, numbers.nbytes)

    def _runs(self) -> Iterator[_Run]:
        for part in layout.parts(self.frame):
            if isinstance(part, layout.Vector):
                continue
            for to, (_, sources) in zip(self._matrices[part.name], self._by_kind(part), strict=True):
                every = len(sources) if part.alternate else 1
                tile = 0
                for source in sources:
                    stored = self._stored(source, part.columns)
                    unit = self._tensors.turned_rows(source.name) or TILE
                    at_once = max(1, READ_BYTES // (stored.bytes // stored.shape[0]) // unit) * unit
                    for first in range(0, source.rows, at_once):
                        rows = source.start + first, source.start + min(first + at_once, source.rows)
                        yield _Run(source.name, stored, *rows, to, tile + first // TILE * every, every)
                    tile += 1 if part.alternate else padded(source.rows, TILE) // TILE

    def _lay_out(self, run: _Run) -> None:
        kind, count = run.stored.kind, run.end - run.first
        order = list(range(count))
        if kind in LEVELS_BYTES or kind in (F32, F16, BF16, MXFP4):
            raw = self._tensors.raw_rows(run.name, run.first, run.end)
            rows = _address(raw)
            if head := self._tensors.turned_rows(run.name):
                order = unpaired(numpy.arange(count), count // head).tolist()
        else:
            numbers = self._tensors.rows(run.name, run.stored.shape, run.first, run.end)
            kind, rows = F32, numbers.ctypes.data
        order += [-1] * (-count % TILE)
        groups = run.to.columns // GROUP
        loaded = library.library()
        assert loaded is not None
        said = loaded.h2o_lay_out(
            kind,
            run.stored.shape[1],
            len(order) // TILE,
            run.every,
            rows,
            library.int32s(order),
            run.to.weights + run.tile * groups * LEVELS_BYTES[run.to.kind],
            run.to.scales + run.tile * groups * SCALES_BYTES[run.to.kind],
        )
        if said:
            raise damaged(run.stored.file, f"{run.name} holds NaN or infinity")
        self._rows += count
