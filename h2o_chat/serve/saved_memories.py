"""Memories on disk, from the end of a server to the next one: a folder for each model with its settings.

Names of files are hashes: of the key and of the conversation.
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

_END = ".safetensors"


class Saved:
    """A folder that this server locks until it ends.

    Args:
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
        """Memories of the last server, the oldest first; they are read when they are needed.

        What clients of earlier versions saved by a name is among them.
        """
        files = sorted(self.folder.glob(f"*{_END}"), key=lambda file: file.stat().st_mtime_ns)
        return [kept for file in files if (kept := _named(file)) is not None]

    def read(self, kept: Memory) -> None:
        """Loads a memory, if it is not loaded.

        Raises:
            SavedCacheError: the file is missing, damaged, or of another model or settings.
        """
        if kept.state is None:
            assert kept.file is not None
            from h2o_chat.engine.row import read_for

            no_link(kept.file)
            kept.state = read_for(self._batch.reader, self._session, kept.file)
            kept.tokens = kept.state.cache.fed

    def write_rows(self, all: Iterable[Memory]) -> None:
        """Writes all memories that are not saved yet, and removes other files.

        Raises:
            OSError: no room, no right to write there.
        """
        from h2o_chat.engine.saved_cache import write

        files, now = set(), time.time_ns()
        for place, kept in enumerate(all):
            name = f"row-{kept.tag}-{kept.chain.hex()}-{int(kept.marked)}{_END}"
            file = kept.file or self.folder / name
            files.add(file)
            if kept.state is not None and not file.exists():
                write(file, kept.state, self._session)
            if file.exists():  # it may have been removed
                os.utime(file, ns=(now, now + place))  # keeps the order for `rows`
        for file in self.folder.glob(f"*{_END}"):
            if file not in files and _named(file) is not None:
                file.unlink(missing_ok=True)


def _named(file: Path) -> Memory | None:
    """A memory that is not loaded, from its file's name; None for other files."""
    *begin, chain, marked = file.name.removesuffix(_END).split("-")
    try:
        hashed = bytes.fromhex(chain)
    except ValueError:
        return None
    if len(hashed) != 32:
        return None
    return Memory(hashed, marked == "1", 0, None, file, tag="".join(begin[1:2]))
