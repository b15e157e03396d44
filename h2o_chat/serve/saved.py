"""Memories on disk: all rows when the server ends, and what clients save by a name.

A folder for each model and all else that must be alike. Names of files are made of hashes: that of the
conversation and, where a client has given a name, one of its key and that name. So no name is ever a path,
and none leads to what another key has saved.
"""

import hmac
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_chat.base.errors import BusyError
from h2o_chat.base.private_files import no_link, open_own, own_folder
from h2o_chat.base.system import lock
from h2o_chat.serve.errors import ApiError
from h2o_chat.serve.prefixes import Kept, tag_of

if TYPE_CHECKING:
    from h2o_chat.engine.batch import Batch
    from h2o_chat.engine.saved_cache import RowSnapshot

SESSIONS = 256
"""Saved by a name, of each key at most."""
NAME_CHARACTERS = 255
_END = ".safetensors"


class Saved:
    """One folder, which is this server's alone until it ends.

    Args:
        data: where all that is kept lies.
        context: see `prefixes.beginning`.

    Raises:
        BusyError: another server with the same model and settings has it.
        StoreError: others may write there, or it is a link.
        OSError: it cannot be made.
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
        for part in self.folder.glob("*.part"):  # of a server that was killed
            part.unlink(missing_ok=True)

    def rows(self) -> list[Kept]:
        """Those of the server before, the oldest first; they are read when somebody goes on."""
        files = sorted(self.folder.glob(f"row-*{_END}"), key=lambda file: file.stat().st_mtime_ns)
        return [kept for file in files if (kept := _named(file)) is not None]

    def read(self, kept: Kept) -> None:
        """Brings a memory into this process; one that is there stays as it is.

        Raises:
            SavedCacheError: the file is not there, damaged, or of something else.
        """
        if kept.state is None:
            assert kept.file is not None
            kept.state = self._read(kept.file)
            kept.tokens = kept.state.cache.fed

    def write_rows(self, all: Iterable[Kept]) -> None:
        """Writes all that are not there yet; of those before no other stays.

        Raises:
            OSError: no room, no right to write there.
        """
        names, now = set(), time.time_ns()
        for place, kept in enumerate(all):
            file = self.folder / _name(f"row-{kept.tag}" if kept.tag else "row", kept)
            names.add(file.name)
            if kept.state is not None and not file.exists():
                self._write(file, kept.state)
            if file.exists():  # else somebody has removed it
                os.utime(file, ns=(now, now + place))  # the order in which they are read again
        for file in self.folder.glob(f"row-*{_END}"):
            if file.name not in names:
                file.unlink(missing_ok=True)

    def write_session(self, owner: bytes, name: str, kept: Kept) -> int:
        """Saves a memory by a name of its client's; one of that name before is replaced. Its bytes.

        Raises:
            ApiError: there are too many, or the name is none.
            OSError: no room, no right to write there.
        """
        assert kept.state is not None
        begin = _of_client(owner, name)
        before = list(self.folder.glob(f"{begin}-*{_END}"))
        if not before and len(list(self.folder.glob(f"session-{tag_of(owner)}-*{_END}"))) >= SESSIONS:
            raise ApiError(507, f"{SESSIONS} sessions are saved already: save over one.", "too_many_sessions")
        file = self.folder / _name(begin, kept)
        self._write(file, kept.state)
        for old in before:
            if old != file:
                old.unlink(missing_ok=True)
        return file.stat().st_size

    def session(self, owner: bytes, name: str) -> tuple[Kept, int]:
        """What a client has saved by this name, and its bytes.

        Raises:
            ApiError: there is nothing, or the name is none.
            SavedCacheError: the file cannot be used.
        """
        begin = _of_client(owner, name)
        files = sorted(self.folder.glob(f"{begin}-*{_END}"), key=lambda file: file.stat().st_mtime_ns)
        kept = _named(files[-1]) if files else None
        if kept is None or kept.file is None:
            raise ApiError(404, "Nothing was saved by this name, model and key.", "no_session", "filename")
        self.read(kept)
        file, kept.file, kept.tag = kept.file, None, tag_of(owner)  # rows have files of their own
        return kept, file.stat().st_size

    def _read(self, file: Path) -> "RowSnapshot":
        from h2o_chat.engine.row import read_for

        no_link(file)
        return read_for(self._batch.reader, self._session, file)

    def _write(self, file: Path, state: "RowSnapshot") -> None:
        from h2o_chat.engine.saved_cache import write

        write(file, state, self._session)


def _of_client(owner: bytes, name: str) -> str:
    """Begins the name of what a key has saved by a name.

    Raises:
        ApiError: that is no name.
    """
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARACTERS:
        raise ApiError(
            400, f"filename is no text of 1 to {NAME_CHARACTERS} characters.", "invalid_request", "filename"
        )
    named = hmac.digest(owner, name.encode("utf-8", "surrogatepass"), "sha256").hex()[:32]
    return f"session-{tag_of(owner)}-{named}"


def _name(begin: str, kept: Kept) -> str:
    return f"{begin}-{kept.chain.hex()}-{int(kept.marked)}{_END}"


def _named(file: Path) -> Kept | None:
    """What a file's name says; None where it is none of ours."""
    *begin, chain, marked = file.name.removesuffix(_END).split("-")
    try:
        hashed = bytes.fromhex(chain)
    except ValueError:
        return None
    return Kept(hashed, marked == "1", 0, None, file, tag="".join(begin[1:2])) if len(hashed) == 32 else None
