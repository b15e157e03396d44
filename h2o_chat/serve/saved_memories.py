"""Memories on disk: all of them when the server ends.

There is a folder for each model with its settings. Names of files are hashes of the conversation and its key.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_chat.base.errors import BusyError
from h2o_chat.base.private_files import no_link, open_own, own_folder
from h2o_chat.base.system import lock
from h2o_chat.serve.prefixes import Memory

if TYPE_CHECKING:
    from h2o_chat.engine.batch import Batch
    from h2o_chat.engine.saved_cache import RowSnapshot

_END = ".safetensors"


class Saved:
    """A folder that this server locks until it ends.

    Args:
        data: the data folder.
        context: see `prefixes.beginning`.

    Raises:
        BusyError: another server with the same model and settings has locked it.
        StoreError: others may write there, or it is a link.
        OSError: it cannot be created.
    """

    def __init__(self, data: Path, context: bytes, batch: "Batch") -> None:
        self._batch, self._session = batch, batch.session(0)
        self.folder = data / "serve" / context.hex()[:16]
        own_folder(data)
        for one in (self.folder.parent, self.folder):
            no_link(one)
            own_folder(one)
        self._lock = open_own(self.folder / "lock", os.O_RDWR | os.O_CREAT)
        try:
            lock(self._lock)
        except BlockingIOError as error:
            raise BusyError(
                f"Another server with this model and these settings keeps its rows in {self.folder}.",
                "Give this one a folder of its own: --data FOLDER; or --no-store.",
            ) from error
        for part in self.folder.glob("*.part"):  # left by a killed server
            part.unlink(missing_ok=True)

    def rows(self) -> list[Memory]:
        """Memories of the last server, the oldest first; they are read when they are needed."""
        files = sorted(self.folder.glob(f"row-*{_END}"), key=lambda file: file.stat().st_mtime_ns)
        return [kept for file in files if (kept := _named(file)) is not None]

    def read(self, kept: Memory) -> None:
        """Loads a memory, if it is not loaded.

        Raises:
            SavedCacheError: the file is missing, damaged, or of another model or settings.
        """
        if kept.state is None:
            assert kept.file is not None
            kept.state = self._read(kept.file)
            kept.tokens = kept.state.cache.fed

    def write_rows(self, all: Iterable[Memory]) -> None:
        """Writes all memories that are not saved yet, and removes other files.

        Raises:
            OSError: no room, no right to write there.
        """
        names, now = set(), time.time_ns()
        for place, kept in enumerate(all):
            file = self.folder / _name(f"row-{kept.tag}" if kept.tag else "row", kept)
            names.add(file.name)
            if kept.state is not None and not file.exists():
                self._write(file, kept.state)
            if file.exists():  # it may have been removed
                os.utime(file, ns=(now, now + place))  # keeps the order for `rows`
        for file in self.folder.glob(f"row-*{_END}"):
            if file.name not in names:
                file.unlink(missing_ok=True)

    def _read(self, file: Path) -> "RowSnapshot":
        from h2o_chat.engine.row import read_for

        no_link(file)
        return read_for(self._batch.reader, self._session, file)

    def _write(self, file: Path, state: "RowSnapshot") -> None:
        from h2o_chat.engine.saved_cache import write

        write(file, state, self._session)


def _name(begin: str, kept: Memory) -> str:
    return f"{begin}-{kept.chain.hex()}-{int(kept.marked)}{_END}"


def _named(file: Path) -> Memory | None:
    """A memory that is not loaded, from its file's name; None for other files."""
    *begin, chain, marked = file.name.removesuffix(_END).split("-")
    try:
        hashed = bytes.fromhex(chain)
    except ValueError:
        return None
    return (
        Memory(hashed, marked == "1", 0, None, file, tag="".join(begin[1:2])) if len(hashed) == 32 else None
    )
