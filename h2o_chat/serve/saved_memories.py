"""Memories on disk: all of them when the server ends, and those that clients save by a name.

There is a folder for each model with its settings. Names of files are hashes: of the conversation and, if a
client gave a name, of its key and that name. A name therefore is never a path, and never finds another key's
file.
"""

import hmac
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_chat.base.errors import BusyError
from h2o_chat.base.private_files import no_link, open_own, own_folder
from h2o_chat.base.system import lock
from h2o_chat.serve.api_errors import ApiError, wrong
from h2o_chat.serve.prefixes import Memory, tag_of

if TYPE_CHECKING:
    from h2o_chat.engine.batch import Batch
    from h2o_chat.engine.saved_cache import RowSnapshot

SESSIONS = 256
"""Most files that a key can save by a name."""
NAME_CHARACTERS = 255
_END = ".safetensors"


class Saved:
    """A folder that this server locks until it ends; for `context`, see `prefixes.beginning`.

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
        return [kept for file in self._files("row") if (kept := _named(file)) is not None]

    def read(self, kept: Memory) -> None:
        """Loads a memory; raises SavedCacheError if its file is missing, damaged, or of another model."""
        if kept.state is None:
            assert kept.file is not None
            from h2o_chat.engine.row import read_for

            no_link(kept.file)
            kept.state = read_for(self._batch.reader, self._session, kept.file)
            kept.tokens = kept.state.cache.fed

    def write_rows(self, all: Iterable[Memory]) -> None:
        """Writes all memories that are not saved yet, and removes other files; raises OSError."""
        names, now = set(), time.time_ns()
        for place, kept in enumerate(all):
            file = self.folder / _name(f"row-{kept.tag}" if kept.tag else "row", kept)
            names.add(file.name)
            if kept.state is not None and not file.exists():
                self._write(file, kept.state)
            if file.exists():  # it may have been removed
                os.utime(file, ns=(now, now + place))  # keeps the order for `rows`
        for file in self._files("row"):
            if file.name not in names:
                file.unlink(missing_ok=True)

    def write_session(self, owner: bytes, name: str, kept: Memory) -> int:
        """Saves a memory over that of this name; returns its bytes. Raises ApiError for too many, OSError."""
        assert kept.state is not None
        begin = _of_client(owner, name)
        before = self._files(begin)
        if not before and len(self._files(f"session-{tag_of(owner)}")) >= SESSIONS:
            raise ApiError(507, f"{SESSIONS} sessions are saved already: save over one.", "too_many_sessions")
        file = self.folder / _name(begin, kept)
        self._write(file, kept.state)
        for old in before:
            if old != file:
                old.unlink(missing_ok=True)
        return file.stat().st_size

    def session(self, owner: bytes, name: str) -> tuple[Memory, int]:
        """The memory saved by this name, and its bytes; raises ApiError for none, or SavedCacheError."""
        files = self._files(_of_client(owner, name))
        kept = _named(files[-1]) if files else None
        if kept is None or kept.file is None:
            raise ApiError(404, "Nothing was saved by this name, model and key.", "no_session", "filename")
        self.read(kept)
        file, kept.file, kept.tag = kept.file, None, tag_of(owner)  # `write_rows` writes another file
        return kept, file.stat().st_size

    def _files(self, begin: str) -> list[Path]:
        """Files by the beginning of their names, the oldest first."""
        return sorted(self.folder.glob(f"{begin}-*{_END}"), key=lambda file: file.stat().st_mtime_ns)

    def _write(self, file: Path, state: "RowSnapshot") -> None:
        from h2o_chat.engine.saved_cache import write

        write(file, state, self._session)


def _of_client(owner: bytes, name: str) -> str:
    """The beginning of the file's name for a client's name."""
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARACTERS:
        raise wrong("filename", f"filename is no text of 1 to {NAME_CHARACTERS} characters.")
    named = hmac.digest(owner, name.encode("utf-8", "surrogatepass"), "sha256").hex()[:32]
    return f"session-{tag_of(owner)}-{named}"


def _name(begin: str, kept: Memory) -> str:
    return f"{begin}-{kept.chain.hex()}-{int(kept.turn_marker_fed)}{_END}"


def _named(file: Path) -> Memory | None:
    """A memory that is not loaded, from its file's name; None for other files."""
    found = re.fullmatch(rf"(?:row|session)-(?:(\w+)-(?:\w+-)?)?([0-9a-f]{{64}})-([01]){_END}", file.name)
    if found is None:
        return None
    tag, chain, turn_marker_fed = found.groups("")
    return Memory(bytes.fromhex(chain), turn_marker_fed == "1", 0, None, file, tag=tag)
