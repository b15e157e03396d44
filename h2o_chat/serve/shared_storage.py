"""A folder that several servers share, through fsspec: a directory, or object storage by its URL."""

import os
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from h2o_chat.base.errors import UsageError


class Storage:
    """One folder; names are paths inside it. Thread-safe; raises OSError, and UsageError when it is made."""

    def __init__(self, url: str) -> None:
        name = f"try-{secrets.token_hex(8)}"
        try:
            from fsspec import url_to_fs

            self._fs: Any
            self._fs, self._root = url_to_fs(url)
            self._is_directory = "file" in self._fs.protocol
            if self._is_directory:
                Path(self._root).mkdir(mode=0o700, parents=True, exist_ok=True)
                self._fs.auto_mkdir = True
            self.create(name, b"1")
            with suppress(FileExistsError):
                self.create(name, b"2")
            if self.read(name) != b"1":
                raise ValueError("it lets two writers make one file, and a conversation could fork")
            self.remove(name)
        except (ImportError, ValueError, OSError) as error:
            hint = "Give a directory, or s3://BUCKET/FOLDER (with s3fs), which knows If-None-Match."
            raise UsageError(f"--state {url} cannot be used: {error}.", hint) from error

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder; none where there is no such folder."""
        with suppress(FileNotFoundError):
            return [Path(one).name for one in self._do("ls", folder, detail=False, refresh=True)]
        return []

    def read(self, name: str) -> bytes:
        return bytes(self._do("cat_file", name))

    def create(self, name: str, content: bytes) -> None:
        """Writes a new file, whole or not at all; raises FileExistsError where the name is taken."""
        if not self._is_directory:  # If-None-Match
            self._do("pipe_file", name, content, mode="create")
            return
        path = Path(self._root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
        try:
            with part.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(part, path)
        finally:
            part.unlink(missing_ok=True)

    def put(self, name: str, write: Callable[[Path], None]) -> None:
        """Copies a file that `write` makes to a name that nobody else uses."""
        with tempfile.TemporaryDirectory() as folder:
            write(made := Path(folder) / "file")
            self._do("put_file", name, str(made))

    def get(self, name: str, file: Path) -> None:
        self._do("get_file", name, str(file))

    def remove(self, name: str) -> None:
        """Removes a file; another server may have done so."""
        with suppress(FileNotFoundError):
            self._do("rm_file", name)

    def _do(self, work: str, name: str, *more: Any, **options: Any) -> Any:
        places = [f"{self._root}/{name}", *more]
        try:
            return getattr(self._fs, work)(*(places[::-1] if work == "put_file" else places), **options)
        except OSError:
            raise
        except Exception as error:  # of a client of object storage that cannot reach it
            raise OSError(f"{type(error).__name__}: {error}") from error
